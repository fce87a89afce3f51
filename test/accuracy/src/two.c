/* SPDX-License-Identifier: Apache-2.0 */
#include "two.h"

uint64_t begin, released;

void two(const char *comm, void (*other_acts)(struct actor *), void (*victim_acts)(struct actor *))
{
	struct actor holder = {.comm = comm, .cpu = other, .fifo = MIDDLE, .act = other_acts};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = victim_acts};

	begin = now() + 20 * MSEC;
	start(&holder);
	start(&victim);
	join(&holder);
	join(&victim);
	truth.culprit = holder.tid;
	truth.part = released - truth.start;
}
