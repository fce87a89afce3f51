package bpf

import (
	"crypto/sha256"
	"encoding/hex"
)

// Fingerprint identifies the kernel side: all programs, maps and what they share with Go.
// Two builds with the same one can work on the same loaded objects.
func Fingerprint() string {
	h := sha256.New()
	for _, object := range [][]byte{_TailcamBytes, _PairBytes, _CallBytes} {
		h.Write(object)
	}
	return hex.EncodeToString(h.Sum(nil))
}
