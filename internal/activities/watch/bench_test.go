package watch

import (
	"testing"

	"github.com/tailcam/tailcam/bpf/abi"
)

// BenchmarkScan is a scan of all tokens of a process, of which none or all are live.
func BenchmarkScan(b *testing.B) {
	for name, live := range map[string]int{"1024 tokens, 16 live": 16, "131072 tokens, none live": 0, "131072 tokens, 100000 live": 100_000} {
		b.Run(name, func(b *testing.B) {
			w := &world{now: 1000 * ms}
			w.Watcher = New(&Options{Processes: func() []Process { return w.list }, Now: func() uint64 { return w.now }})
			tokens := 131072
			if live == 16 {
				tokens = 1024
			}
			p := w.add(tokens)
			for i := range live {
				p.begin(i, "live")
			}
			for range 20 {
				w.Scan()
			}
			for b.Loop() {
				w.Scan()
			}
		})
	}
}

// BenchmarkSlow is a message of a process all of whose slots say that they carry the token.
func BenchmarkSlow(b *testing.B) {
	w := &world{now: 1000 * ms}
	w.Watcher = New(&Options{Processes: func() []Process { return w.list }, Now: func() uint64 { return w.now }})
	p := w.add(8)
	p.maps.Threads = abi.ActivityMaxThreads
	p.maps.Shared = make([]byte, (1+p.maps.Threads+8)*abi.ActivitySharedBytes)
	p.maps.Accounts = make([]byte, (1+p.maps.Threads+8)*abi.ActivityAccountBytes)
	p.begin(0, "all")
	for slot := range p.maps.Threads {
		p.carry(slot, 1+slot, 0)
		p.carry(slot, 1+slot, 0)
	}
	w.Scan()
	for b.Loop() {
		w.pass(10 * ms)
		p.end(0)
		w.Slow(p.key, p.index(0))
		p.token(0).Generation--
	}
}

// BenchmarkOfTraces looks for one trace among the tokens of a process, of which none has it.
func BenchmarkOfTraces(b *testing.B) {
	for name, live := range map[string]int{"1024 tokens, 16 live": 16, "131072 tokens, 100000 live": 100_000} {
		b.Run(name, func(b *testing.B) {
			w := &world{now: 1000 * ms}
			w.Watcher = New(&Options{Processes: func() []Process { return w.list }, Now: func() uint64 { return w.now }})
			tokens := 131072
			if live == 16 {
				tokens = 1024
			}
			p := w.add(tokens)
			for i := range live {
				p.begin(i, "live")
				p.token(i).TraceId[15], p.token(i).SpanId[7] = 1, 1
			}
			for range 20 {
				w.Scan()
			}
			ids := []string{"4bf92f3577b34da6a3ce929d0e0e4736"}
			for b.Loop() {
				w.OfTraces(ids, 0)
			}
		})
	}
}
