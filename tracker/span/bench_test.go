package span

import (
	"testing"
)

// What a begin and its end cost together, whether tailcam runs or not.
func BenchmarkPair(b *testing.B) {
	for b.Loop() {
		_ = Begin("bench-1") // the key is good
		_ = End("bench-1")
	}
}
