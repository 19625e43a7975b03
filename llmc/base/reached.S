// Functions of shared libraries, for programs that open these libraries only when a run needs them (library.h).
//
// `REACH name` defines a function `name` and an entry for it in the section "reached". The function jumps to the
// address in its entry, which library_reach() fills in, and so passes on all arguments. cuda/rules.mk lists in
// reached.list what the objects of a program call.
.macro REACH name
        .section .rodata
1:      .asciz "\name"
        .section reached, "aw"
        .balign 8
2:      .quad 0, 1b
        .text
        .globl \name
        .type \name, %function
\name:
#ifdef __x86_64__
        jmp *2b(%rip)
#elif defined __aarch64__
        adrp x16, 2b
        ldr x16, [x16, :lo12:2b]
        br x16
#endif
.endm
#include "reached.list"
        .section .note.GNU-stack, "", %progbits
