package detect

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
)

// TestUserStacksUnderLoad: the stack of a thread that goes on at once, by another way
// without frame pointers each time, beside others that take the CPUs. At least 99 of 100
// are what they were, or say that they may not be.
func TestUserStacksUnderLoad(t *testing.T) {
	const asked, hold = 100, 12 * time.Millisecond
	for _, tracks := range [][]rules.Track{{rules.OffCPU, rules.Wakeup}, {rules.Syscall}} {
		t.Run(string(tracks[0]), func(t *testing.T) {
			var list []rules.Rule
			for _, track := range tracks {
				r := rules.Rule{
					Name: string(track), Track: track, Threshold: hold - time.Millisecond, Stacks: []rules.Stack{rules.UserStack},
					When: rules.Match{Comm: []string{"inj-walk"}},
				}
				if track == rules.Syscall {
					r.Attach, r.When.Syscall = rules.AttachAll, []int{unix.SYS_CLOCK_NANOSLEEP}
				}
				list = append(list, r)
			}
			c := watch(t, list, nil)
			truth := inject.Run(t, "walk", strconv.Itoa(asked), micros(hold), "4", strconv.Itoa(runtime.NumCPU()))
			var tally struct{ right, approximatelyRight, approximate, wrong int }
			ways := map[int][]inject.Event{}
			for _, e := range truth {
				ways[e.TID] = append(ways[e.TID], e)
			}
			for _, o := range c.settle() {
				i := slices.IndexFunc(ways[o.Task.TID], func(e inject.Event) bool {
					return o.EndMono >= e.Start && o.StartMono <= e.End && o.DelayNS >= int64(hold-time.Millisecond) &&
						len(o.Stacks.User) > 0 && strings.HasPrefix(o.Stacks.User[0], "walk_sleep+")
				})
				if i < 0 {
					continue // it waited elsewhere, for a CPU
				}
				got := wayOf(o.Stacks.User)
				right := got == ways[o.Task.TID][i].Func
				switch {
				case right && o.Stacks.Approximate:
					tally.approximatelyRight++
				case o.Stacks.Approximate:
					tally.approximate++
				case right:
					tally.right++
				default:
					if tally.wrong++; tally.wrong <= 5 {
						t.Logf("%q, want the way %s", o.Stacks.User, ways[o.Task.TID][i].Func)
					}
				}
			}
			all := tally.right + tally.approximatelyRight + tally.approximate + tally.wrong
			t.Logf("of %d stacks: %+v", all, tally)
			assert.Check(t, all >= asked && 100*tally.wrong <= all, "%d of %d are wrong, and do not say so", tally.wrong, all)
		})
	}
}

// wayOf is the functions that walk.c has called, outermost first, if nothing is missing.
func wayOf(frames []string) string {
	var way []byte
	for i, f := range frames {
		name, _, _ := strings.Cut(f, "+")
		switch {
		case i == 0:
		case strings.HasPrefix(name, "walk_") && len(name) == len("walk_a"):
			way = append(way, name[len("walk_")])
		case name == "walk_thread" && i+1 < len(frames):
			slices.Reverse(way)
			return string(way)
		default:
			return "?"
		}
	}
	return "?"
}
