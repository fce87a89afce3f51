// Package detect holds the end-to-end tests of detection: injected latencies
// on the running kernel, through package tracker, held against the injectors'
// own clock.
//
// What the tests demand of every injected latency, and why that is the truth:
//
//   - The injector reads its clock before and after, so what the kernel side
//     reports lies within: it starts no earlier and ends no later. This is
//     demanded of every report, however loaded the machine is.
//   - So one whose length by the injector's clock is under the threshold must
//     not be reported, without any margin.
//   - One that was asked to be over is asked to be at twice the threshold. If
//     it came out over the threshold by the injector's clock, and the injector
//     saw no disturbance, it must be reported, once.
//   - One that was asked to be under, but that the machine itself made long,
//     may be reported: who knows on which side of the hook the time was lost.
//   - Reported and injected length may differ by what happens between clock
//     and hook: at most a millisecond for nine of ten, checked in every test.
package detect
