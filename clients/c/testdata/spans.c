/* SPDX-License-Identifier: Apache-2.0 */
/* Spans need nothing of the C library. */
#include "tailcam.h"

int main(void)
{
	tailcam_begin("checkout-42");
	tailcam_end("checkout-42");
	return 0;
}
