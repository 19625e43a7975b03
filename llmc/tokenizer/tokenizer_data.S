// The GPT-2 tokenizer file, embedded: assembled once, from the root of the repository, and declared in tokenizer.h.
    .section .rodata
    .balign 16
    .global gpt2_tokenizer_file
    .global gpt2_tokenizer_file_end
    .hidden gpt2_tokenizer_file
    .hidden gpt2_tokenizer_file_end
    .type gpt2_tokenizer_file, %object
gpt2_tokenizer_file:
    .incbin "data/gpt2_tokenizer.bin"
gpt2_tokenizer_file_end:
    .size gpt2_tokenizer_file, . - gpt2_tokenizer_file

    .section .note.GNU-stack, "", %progbits
