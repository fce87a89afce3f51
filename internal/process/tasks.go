package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// chunk is of how many tasks the directories are open at once.
const chunk = 128

// lane is from how many tasks on two goroutines share them.
const lane = 16

// Tasks describes the tasks that still exist, or were identified before they exited, in
// order, as far as limit permits.
func (t *Table) Tasks(tids []int, limit time.Duration) []Task {
	end := time.Now().Add(limit)
	if len(tids) < lane {
		return t.tasks(tids, end)
	}
	var rest []Task
	var panicked any
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { panicked = recover() }() // whoever called has a guard
		rest = t.tasks(tids[len(tids)/2:], end)
	}()
	first := t.tasks(tids[:len(tids)/2], end)
	if <-ended; panicked != nil {
		panic(panicked)
	}
	return append(first, rest...)
}

// tasks is Tasks until end, in one goroutine after the other.
func (t *Table) tasks(tids []int, end time.Time) (out []Task) {
	for some := range slices.Chunk(tids, chunk) {
		out = append(out, each(t, some, "tasks", end, t.readTasks)...)
	}
	return out
}

// readTasks is a reader of each.
func (t *Table) readTasks(tids []int) (read func(i int) (Task, error), done func()) {
	list := make([]openTask, len(tids))
	for i, tid := range tids {
		list[i] = t.openTask(tid)
	}
	p := processes{cmdlines: t.cmdlines(list), known: map[int]Identity{}}
	return func(i int) (Task, error) { return t.taskHere(&list[i], &p) }, func() {
		for i := range list {
			list[i].dir.Close() // only read from, or nil
		}
	}
}

// processes are those of a batch of tasks: threads share theirs.
type processes struct {
	cmdlines map[Started]string
	known    map[int]Identity
}

// openTask is a task whose directory is open, which stays that of this task, and its stat.
type openTask struct {
	tid     int
	dir     *os.File
	cgroups []byte // read before its stat, which tells whether it had left them
	task    Task
	now     state
	err     error
}

func (t *Table) openTask(tid int) (o openTask) {
	o.tid = tid
	if o.dir, o.err = os.Open(filepath.Join(t.opts.Proc, strconv.Itoa(tid))); o.err != nil {
		o.task, o.err = t.exited(tid, o.err)
		return o
	}
	o.cgroups, _ = readIn(o.dir, "cgroup", maxCgroups) // without it the rest is still worth something
	var text []byte
	if text, o.err = readIn(o.dir, "stat", maxStat); o.err == nil {
		o.task, o.now, o.err = parseTaskStat(text)
	}
	return o
}

// taskHere reads about a task in the calling goroutine, without a timeout.
func (t *Table) taskHere(o *openTask, p *processes) (Task, error) {
	if o.err != nil || o.task.Exited {
		return o.task, o.err
	}
	tid, dir := o.tid, o.dir
	task, err := o.read()
	if err != nil {
		return t.exited(tid, err)
	}
	now := &o.now
	task.TID = tid
	who, known := p.known[task.PID]
	if task.PID != tid && !known {
		now = nil
		if dir, err = os.Open(filepath.Join(t.opts.Proc, strconv.Itoa(task.PID))); err != nil {
			return task, nil //nolint:nilerr // without its process the rest is still worth something
		}
		defer dir.Close()
	}
	if !known {
		if who, err = t.identityHere(task.PID, dir, now, p.cmdlines); err != nil {
			return task, nil //nolint:nilerr // as above
		}
		p.known[task.PID] = who
	}
	v1 := task.V1Cgroups
	task.Identity = who
	if v1 != (V1Cgroups{}) { // otherwise it is exiting, and has left them
		task.V1Cgroups = v1
	}
	return task, nil
}

// exited describes the first thread of a process that was identified before it exited.
func (t *Table) exited(tid int, why error) (Task, error) {
	known, ok := t.identities.Load(tid)
	if !ok || !errors.Is(why, fs.ErrNotExist) || !t.kept(&known) {
		return Task{}, why
	}
	return Task{
		TID: tid, PID: tid, Comm: clean(known.life.comm, maxCmdline), Kernel: known.life.kernel, Exited: true, Identity: known.who,
	}, nil
}

// identityHere identifies the process whose directory dir is; now is its state, if that has
// just been read.
func (t *Table) identityHere(pid int, dir *os.File, now *state, cmdlines map[Started]string) (Identity, error) {
	ask := func(name string, limit int) ([]byte, error) { return readIn(dir, name, limit) }
	if now == nil {
		s, err := stateOf(ask)
		if err != nil {
			return Identity{}, err
		}
		now = &s
	}
	known, ok := t.identities.Load(pid)
	if ok && known.life == now.life && (now.exiting || time.Now().Before(known.until)) {
		return known.who, nil // regardless of age, if it is exiting: it has left its cgroups
	}
	return t.renew(pid, *now, known, func(name string, limit int) ([]byte, error) {
		if name == cmdlineFile {
			of := Started{pid, now.start}
			text, ok := cmdlines[of]
			switch {
			case now.kernel || !ok && t.opts.Cmdlines == nil:
				return t.cmdline(pid, now.life, dir)
			case !ok: // only a thread of it is among the tasks
				text = t.opts.Cmdlines([]Started{of})[of]
			}
			return []byte(text), nil
		}
		return ask(name, limit)
	})
}

// cmdlines reads uncached command lines of processes with Options.Cmdlines.
func (t *Table) cmdlines(list []openTask) map[Started]string {
	if t.opts.Cmdlines == nil {
		return nil
	}
	var wanted []Started
	for i := range list {
		tid, now := list[i].tid, &list[i].now
		known, ok := t.identities.Load(tid)
		if list[i].err != nil || list[i].task.Exited || now.kernel || now.exiting || ok && known.life == now.life && time.Now().Before(known.until) {
			continue
		}
		wanted = append(wanted, Started{tid, now.start})
	}
	if len(wanted) == 0 {
		return nil
	}
	return t.opts.Cmdlines(wanted)
}
