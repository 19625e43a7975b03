// Entries of the table of a backend. The table's functions take `Stored*` and `Residual*` (backend.h), the GPU's take
// `floatX*` and the type of the residual stream. A cast of the function pointer would be undefined behaviour, so Entry
// makes a function that converts the pointers:
//
//   .gelu_forward = Entry<gelu_forward>{}                    a void (*)(Stored*, const Stored*, size_t)
//   .encoder_forward = Entry<encoder_forward<bf16>, bf16>{}  a void (*)(Residual*, const int*, const Stored*, ...)
#pragma once
#include "device.cuh"

namespace { // depends on floatX: see device.cuh
// R: the type of the residual stream; void in functions that take none.
template <class R> static inline floatX* as_kernels(Stored* p) { return (floatX*)p; }
template <class R> static inline const floatX* as_kernels(const Stored* p) { return (const floatX*)p; }
template <class R> static inline R* as_kernels(Residual* p) { return (R*)p; }
template <class R> static inline const R* as_kernels(const Residual* p) { return (const R*)p; }
template <class R, class Type> static inline Type as_kernels(Type x) { return x; } // other arguments stay as they are

// Converts to a pointer to a function of any type that can call `function` after these conversions. Compilers warn
// where the braces narrow: of a size_t of the table that `function` takes as an int.
template <auto function, class R = void> struct Entry {
    template <class Result, class... Arguments> using Pointer = Result (*)(Arguments...);

    template <class Result, class... Arguments> static Result call(Arguments... arguments) {
        return function({as_kernels<R>(arguments)}...);
    }
    template <class Result, class... Arguments> constexpr operator Pointer<Result, Arguments...>() const {
        return call<Result, Arguments...>;
    }
};
} // namespace
