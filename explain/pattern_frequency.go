package explain

import (
	"fmt"
	"math"
	"sort"
	"strconv"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// frequency is that of a CPU from a time on.
type frequency struct {
	at  uint64
	khz uint32
}

// ingestFrequency keeps the frequencies of CPUs, which the group power has.
func (m *model) ingestFrequency(ev *trace.Event, b *trace.Frequency) {
	if b.CPU < 0 || b.CPU >= maxCPUs || b.KHz == 0 {
		return
	}
	c := m.cpu(b.CPU)
	if n := len(c.frequencies); n > 0 && c.frequencies[n-1].at <= m.from {
		c.frequencies[n-1] = frequency{ev.Time, b.KHz}
	} else if m.reserve() {
		c.frequencies = append(c.frequencies, frequency{ev.Time, b.KHz})
	}
}

// slowPart is what of a CPU's maximum is slow: the work takes twice as long there, or longer.
const slowPart = 2

// slowly is the time for which the path ran on CPUs at a small part of their frequency.
type slowly struct {
	ns, most    uint64
	lowest      uint32 // kHz
	highest     uint32 // of those that are slow
	cpu         int    // that had the longest stretch
	maximum     uint32 // of that one
	many        bool   // several CPUs
	ofOther, by *Who   // who ran there in the longest stretch, if it is not the slow task
}

// frequencyDelay: it ran, or who it waited for did, on a CPU at half of its frequency or less.
func (l *look) frequencyDelay() *finding {
	s := slowly{cpu: -1, lowest: math.MaxUint32}
	leaves(l.pieces, func(p *piece) {
		switch p.cause {
		case Running, RunningUser, RunningKernel:
			s.by = nil
			if p.task != l.outlier.TID {
				s.by = l.m.whoTask(p.task)
			}
		default:
			if !p.behindTask() {
				return
			}
			s.by = p.by
		}
		l.addSlow(&s, p)
	})
	if !l.most(s.ns) {
		return nil
	}
	at := fmt.Sprintf("CPU %d ran at %s of %s MHz", s.cpu, megahertz(s.lowest, s.highest), mhz(s.maximum))
	if s.many {
		at = fmt.Sprintf("CPUs ran at %s MHz, half of their maximum or less (CPU %d: %s)", megahertz(s.lowest, s.highest), s.cpu, mhz(s.maximum))
	}
	return &finding{confidence: Inferred, by: s.ofOther, why: fmt.Sprintf("%s for %s of it", at, duration(int64(s.ns)))}
}

// addSlow adds the time of a piece for which its CPU is known to have been slow.
func (l *look) addSlow(s *slowly, p *piece) {
	c := l.m.cpus[p.cpu]
	if c == nil || len(c.frequencies) == 0 {
		return
	}
	maximum := l.m.maxFrequency(p.cpu)
	i := sort.Search(len(c.frequencies), func(i int) bool { return c.frequencies[i].at > p.from }) - 1
	for i = max(i, 0); i < len(c.frequencies) && c.frequencies[i].at < p.to && l.spend(); i++ {
		f := &c.frequencies[i]
		from, to := max(f.at, p.from), p.to
		if i+1 < len(c.frequencies) {
			to = min(to, c.frequencies[i+1].at)
		}
		if from >= to || uint64(f.khz)*slowPart > uint64(maximum) {
			continue
		}
		s.ns += to - from
		s.lowest, s.highest = min(s.lowest, f.khz), max(s.highest, f.khz)
		s.many = s.many || s.cpu >= 0 && s.cpu != p.cpu
		if to-from > s.most || s.cpu < 0 {
			s.most, s.cpu, s.maximum, s.ofOther = to-from, p.cpu, maximum, s.by
		}
	}
}

// maxFrequency is the most that a CPU can run at, in kHz; 0: not known.
func (m *model) maxFrequency(cpu int) uint32 {
	n, err := strconv.ParseUint(m.setting(fmt.Sprintf("cpu%d/cpufreq/cpuinfo_max_freq", cpu)), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

func mhz(khz uint32) string { return strconv.FormatUint(uint64(khz+500)/1000, 10) }

func megahertz(lowest, highest uint32) string {
	if mhz(lowest) == mhz(highest) {
		return mhz(lowest)
	}
	return mhz(lowest) + " to " + mhz(highest)
}
