// Entries of the table of a backend. The table's functions take `Stored*` (backend.h), the GPU's take `floatX*`. A cast
// of the function pointer would be undefined behaviour, so Entry<function> makes a function that converts the pointers:
//
//   .gelu_forward = Entry<gelu_forward>{}     a void (*)(Stored*, const Stored*, size_t)
#pragma once
#include "device.cuh"

namespace { // depends on floatX: see device.cuh
static inline floatX* as_floatX(Stored* p) { return (floatX*)p; }
static inline const floatX* as_floatX(const Stored* p) { return (const floatX*)p; }
template <class Type> static inline Type as_floatX(Type x) { return x; } // all other arguments stay as they are

// Converts to a pointer to a function of any type that can call `function` after these conversions.
template <auto function> struct Entry {
    template <class Result, class... Arguments> using Pointer = Result (*)(Arguments...);

    template <class Result, class... Arguments> static Result call(Arguments... arguments) {
        return function(as_floatX(arguments)...);
    }
    template <class Result, class... Arguments> constexpr operator Pointer<Result, Arguments...>() const {
        return call<Result, Arguments...>;
    }
};
} // namespace
