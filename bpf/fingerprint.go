package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
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

// layoutMeaning is raised when what the maps of bpf/tailcam.bpf.c hold means something else
// than before, although its types and numbers are the same: constants of the preprocessor are in neither.
const layoutMeaning = 1

// Layout identifies what the maps of the main object hold. Programs of a build with the same
// one can go on with them.
var Layout = sync.OnceValues(func() (string, error) {
	spec, err := LoadTailcam()
	if err != nil {
		return "", err
	}
	return layoutOf(spec, layoutMeaning), nil
})
