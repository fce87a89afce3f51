/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flags of contention_begin, as in include/trace/events/lock.h. */
#ifndef TAILCAM_CONTENTION_H
#define TAILCAM_CONTENTION_H

#define LCB_F_SPIN (1U << 0)
#define LCB_F_READ (1U << 1)
#define LCB_F_WRITE (1U << 2)
#define LCB_F_RT (1U << 3)
#define LCB_F_PERCPU (1U << 4)
#define LCB_F_MUTEX (1U << 5)

#endif
