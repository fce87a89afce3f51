// Package abi holds everything that the kernel side and Go share: structs,
// enums, flags and limits. It is generated from the C headers beside it, where
// their documentation stands. Names are those of C in camel case: struct
// outlier is Outlier, MATCH_COMM is MatchComm. Constants are untyped, as C's
// fields have plain integer types.
//
// Layout: little-endian, naturally aligned, padding written out. A Go struct
// has the size and the offsets of its C struct, so memory shared with the
// kernel, or a sample read from it, may be used in place. Big-endian machines
// are not supported.
package abi

//go:generate go run ./gen
