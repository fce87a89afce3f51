/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads: one has what the victim wants, until it lets go. */
#ifndef TAILCAM_TWO_H
#define TAILCAM_TWO_H

#include "scenario.h"

/* When the other one begins, and when it has let go: it sets that. */
extern uint64_t begin, released;

/* What the victim does after the other one has begun, and what that one does until it lets go. */
void two(const char *comm, void (*other_acts)(struct actor *), void (*victim_acts)(struct actor *));

#endif
