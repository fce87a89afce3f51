/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which bucket of a histogram a duration is in. */
#ifndef TAILCAM_BUCKET_H
#define TAILCAM_BUCKET_H

#include "abi/histogram.h"
#include "lib/kernel.h"

/*
 * The bucket of v: tracker/histogram, Index. BPF cannot count leading zeros:
 * with all bits below the highest set, the product with a De Bruijn sequence
 * has a number of its own for each power of two in its top six bits.
 *
 * v is then scaled to 64 bits. Of the ends of buckets, scaled as well, at most
 * one is in each sixteenth of a power of two: that is in ends[], or if there is
 * none, the last value there. The lowest four bits of each say how many ends are
 * before it. Scaled delays have zeros there, up to 18 years.
 */
static __always_inline u32 histogram_bucket_of(u64 v)
{
	static const u8 powers[64] = {0,  47, 1,  56, 48, 27, 2,  60, 57, 49, 41, 37, 28, 16, 3,  61,
				      54, 58, 35, 52, 50, 42, 21, 44, 38, 32, 29, 23, 17, 11, 4,  62,
				      46, 55, 26, 59, 40, 36, 15, 53, 34, 51, 20, 43, 31, 22, 10, 45,
				      25, 39, 14, 33, 19, 30, 9,  24, 13, 18, 8,  12, 7,  6,  5,  63};
	static const u64 ends[16] = {
		0x81ffa7a9549ca6e0, 0x8dc3b8960164a7d1, 0x97fffffffffffff2, 0x9a9867054d512392,
		0xa7fffffffffffff3, 0xa8965f74bf065073, 0xb7d88a12d0dd9ea4, 0xbffffffffffffff5,
		0xc7fffffffffffff5, 0xc87c3e7d03cdbec5, 0xd7fffffffffffff6, 0xdaa17c2cd19555d6,
		0xe7fffffffffffff7, 0xee6b280000000007, 0xf7fffffffffffff8, 0xfffffffffffffff8,
	};
	u64 low = v, end;
	u32 power;

	if (!v)
		return 0;
	low |= low >> 1;
	low |= low >> 2;
	low |= low >> 4;
	low |= low >> 8;
	low |= low >> 16;
	low |= low >> 32;
	power = powers[(low * 0x03f79d71b4cb0a89ULL) >> 58];
	v <<= (63 - power) & 63;
	end = ends[v >> 59 & 15];
	return power * 8 + 1 + (end & 15) + ((end - v) >> 63);
}

#endif
