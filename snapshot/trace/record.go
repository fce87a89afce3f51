// Package trace holds the recorder's events: decoding the kernel's records,
// writing and reading them as Common Trace Format 1.8.
package trace

// RecordSize is the size of a flight-recorder record in bytes (bpf/abi.h).
const RecordSize = 64

// Record is one undecoded flight-recorder record, struct record of bpf/abi.h.
type Record [RecordSize]byte
