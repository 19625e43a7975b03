// Formats of token files that other programs write. shard.h reads them all, and writes the first.
//
//   begins with                  written by                     tokens
//   int32 20240520, version 1    llm.c, modded-nanogpt, here    uint16 from byte 1024 (shard.h)
//   int32 20240801, version 7    llm.c for Llama 3              uint32 from byte 1024, with the same header
//   "\x93NUMPY"                  NumPy (build-nanogpt)          uint16, uint32 or int32, behind the header
//   "BIN.TOK\n", int32 version 2 llmq                           int32 from byte 1024
//   nothing                      nanoGPT                        uint16 from byte 0
//
// A file says itself which of the first four it is, so one pattern may match several of them. Nothing in nanoGPT's says
// so: any file of even size could be one, and plain text has valid ids only. So it is read only where the user asks for
// it, as --data_format nanogpt, and refused if it is text.
//
// NumPy's header: the six bytes above, two bytes of version (1.0, 2.0 or 3.0), its length (uint16; uint32 from 2.0 on),
// and a dict of Python: {'descr': '<u2', 'fortran_order': False, 'shape': (1000,), } with spaces and a newline.
// llmq's: the eight bytes above and five int32: 2, bytes of a token (4), number of tokens, size of the vocabulary, and
// 1 if a bit for each token, saying if it counts in the loss, lies behind the tokens. Such files are refused.
#pragma once
#include "../base/base.h"

enum { TOKEN_HEADER_BYTES = 1024 }; // a header lies within them

// Locates the tokens of a file.
typedef struct {
    const char* format; // for messages
    size_t num_tokens, offset;
    int width;          // bytes of a token; 2 are unsigned
} TokenLayout;

typedef enum { HEADER_REQUIRED, HEADER_OPTIONAL } TokenHeader;

// Finds the layout of a file of `size` bytes, of which `head` are the first, TOKEN_HEADER_BYTES or all of them; all
// formats but the first. With HEADER_OPTIONAL, a file with none of these headers is nanoGPT's. Fails if the header is
// wrong, the size does not fit, or the tokens are stored in a way that is not read.
bool token_layout_find(TokenLayout* l, const char* path, const void* head, size_t size, TokenHeader header,
                       Error* err);
