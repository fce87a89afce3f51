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
//     saw no disturbance, it must be reported, once. (TestThresholdIsExact asks
//     for hardly more than the threshold.)
//   - One that was asked to be under, but that the machine itself made long,
//     may be reported: who knows on which side of the hook the time was lost.
//   - A report is never longer than what was injected, and half of them are at
//     most a millisecond shorter, by what happens between clock and hook.
//
// Others load the machine, and a hypervisor takes its CPUs away, so no share of
// what was asked for has to come about: what the injectors' own clocks and
// counts of switches show as disturbed is not held against tailcam, and more is
// injected until enough was exact. What is reported of the time between two
// injected latencies has to fit between them. What the kernel tells no tracer of
// is counted by a tracer of the tests' own (hidden_test.go).
package detect
