// Package accuracy holds tailcam against latencies whose truth is known: each
// scenario causes one on the real kernel, a program of src says by its own clock
// who was slow, because of whom and for how long, and the daemon's explanation
// must say the same. `make scenarios` prints the score.
package accuracy
