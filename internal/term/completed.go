package term

import (
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/tracker/events"
)

// PrintCompleted writes what is new of an outlier that was printed in part
// before: its process, and its stacks if these are asked for. It writes nothing if
// there is nothing new.
func PrintCompleted(c *Console, before, o *events.Outlier, stacks bool) {
	was, is := &before.Task, &o.Task
	process := is.Cmdline != was.Cmdline || is.Cgroup != was.Cgroup || is.Container != was.Container || is.Title != was.Title ||
		is.ContainerName != was.ContainerName || is.Pod != was.Pod
	kernel := stacks && !slices.Equal(before.Stacks.Kernel, o.Stacks.Kernel)
	user := stacks && !slices.Equal(before.Stacks.User, o.Stacks.User)
	waker := stacks && !slices.Equal(before.Stacks.Waker, o.Stacks.Waker)
	if !process && !kernel && !user && !waker {
		return
	}
	c.Printf("%s  %s  %s  %s  %s\n",
		c.Paint(Dim, Time(o.Time)),
		padded(c, Cyan, Clean(o.Rule), 12),
		c.Paint(Dim, fmt.Sprintf("%7s", Duration(o.DelayNS))),
		padded(c, Bold, fmt.Sprintf("%s[%d]", Clean(is.Name()), is.TID), 22),
		c.Paint(Dim, "shown above, now complete"))
	d := details{c: c}
	if process {
		d.process(o)
	}
	if kernel {
		d.stack("kernel", o.Stacks.Kernel, o.Stacks.KernelSources())
	}
	if user {
		d.user(&o.Stacks)
	}
	if waker {
		d.stack("waker", o.Stacks.Waker, o.Stacks.WakerSources())
	}
}
