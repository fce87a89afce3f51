package pagecache

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// loads are what fio does, in the order in which they are told.
var loads = []struct {
	name, file string
	args       []string
}{
	{"warm 4 KiB", "256m", []string{"--rw=randread", "--bs=4k", "--invalidate=0"}},
	{"warm 128 KiB", "256m", []string{"--rw=read", "--bs=128k", "--invalidate=0"}},
	{"cold 4 KiB", "1g", []string{"--rw=randread", "--bs=4k"}},
	{"write 4 KiB", "256m", []string{"--rw=randwrite", "--bs=4k"}},
}

// BenchmarkFio compares buffered reads and writes of fio with and without a Watch, in turns,
// and prints the median of the ratios of their rates, and what each program took. It needs
// root and fio.
//
//	sudo go test -run '^$' -bench Fio -benchtime 5x ./internal/pagecache
func BenchmarkFio(b *testing.B) {
	if _, err := exec.LookPath("fio"); err != nil {
		b.Skip("needs fio")
	}
	for i := range loads {
		l := &loads[i]
		b.Run(l.name, func(b *testing.B) {
			file := filepath.Join(disk(b), "file")
			run := func() float64 { return fio(b, file, l.file, l.args) }
			run() // makes the file
			var ratios, none []float64
			for range b.N {
				before := run()
				with := watched(b, false, run)
				after := run()
				none = append(none, before)
				ratios = append(ratios, with/((before+after)/2))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(none), "IOPS")
			b.ReportMetric(median(ratios), "ratio")
			watched(b, true, run)
		})
	}
}

// watched runs with a Watch. prices: prints what each program took by the kernel's statistics.
func watched(b *testing.B, prices bool, run func() float64) float64 {
	w, err := Open(nil)
	assert.NilError(b, err)
	defer w.Close()
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	if prices {
		stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
		assert.NilError(b, err)
		defer stats.Close()
	}
	go func() { done <- w.Run(ctx) }()
	rate := run()
	stop()
	assert.NilError(b, <-done)
	if prices {
		var told []string
		for name, p := range w.coll.Programs {
			if s, err := p.Stats(); err == nil && s.RunCount > 100 {
				told = append(told, fmt.Sprintf("%s %.0f ns × %d", name, float64(s.Runtime.Nanoseconds())/float64(s.RunCount), s.RunCount))
			}
		}
		slices.Sort(told)
		b.Logf("gross: %s", strings.Join(told, ", "))
	}
	return rate
}

// fio returns requests a second.
func fio(b *testing.B, file, size string, args []string) float64 {
	args = append([]string{"--name=x", "--filename=" + file, "--size=" + size, "--ioengine=psync", "--time_based", "--runtime=1",
		"--randrepeat=0", "--norandommap", "--output-format=json"}, args...)
	out, err := exec.Command("fio", args...).Output()
	assert.NilError(b, err, "%s", out)
	var got struct {
		Jobs []struct {
			Read, Write struct {
				IOPS float64 `json:"iops"`
			}
		}
	}
	assert.NilError(b, json.Unmarshal(out, &got))
	return got.Jobs[0].Read.IOPS + got.Jobs[0].Write.IOPS
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
