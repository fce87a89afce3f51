package explain

import (
	"fmt"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// numbered gives each thread of the pool a number in its name.
func numbered(name string, trace func(s *script)) func(s *script) { return renamed(name, trace) }

// processes makes each thread of the pool a process.
func processes(trace func(s *script)) func(s *script) { return renamed("", trace) }

func renamed(name string, pool func(s *script)) func(s *script) {
	return func(s *script) {
		pool(s)
		for i := range s.list {
			sw, ok := s.list[i].Body.(trace.Switch)
			if !ok || sw.NextComm.String() != "worker" {
				continue
			}
			if name == "" && sw.NextPID == 20 {
				sw.NextPID = sw.NextTID
			} else if name != "" {
				sw.NextComm = trace.MakeComm(fmt.Sprint(name, sw.NextTID))
			}
			s.list[i].Body = sw
		}
	}
}

// beside has the workers of poolTrace be children of one process, and one more task of a process
// that the trace has nothing of; another listens.
func beside(tid, pid, listens int) func(n *Names) {
	return func(n *Names) {
		of := n.Task
		n.Task = func(id int) (TaskInfo, bool) {
			switch {
			case id == 21 || id == 22:
				return TaskInfo{PID: id, PPID: 19, Comm: "worker"}, true
			case id == tid && tid != 0:
				return TaskInfo{PID: pid, PPID: 19, Comm: "worker"}, true
			}
			return of(id)
		}
		n.Tasks = func() []int { return []int{21, 22, tid} }
		n.Sockets = func(id int) (Sockets, bool) { return Sockets{Listens: id == listens}, id == listens }
	}
}

// spinTrace: the victim runs, while another thread, of a process, has lost CPU 1 to a hog; also
// another one of its process, if that is not 0.
func spinTrace(process, another int) func(s *script) {
	return func(s *script) {
		s.swap(400, 1, 0, other, sleeps(0))
		sw := s.list[len(s.list)-1].Body.(trace.Switch)
		sw.NextPID = process
		s.list[len(s.list)-1].Body = sw
		if another != 0 {
			s.swap(420, 2, 0, another, sleeps(0))
			sw.NextTID, sw.NextPID = another, process
			s.list[len(s.list)-1].Body = sw
		}
		s.swap(500, 0, 0, victim, sleeps(0)).swap(1100, 1, other, 40, trace.Switch{})
		if another != 0 {
			s.swap(1110, 2, another, 41, trace.Switch{})
		}
		for i := range uint64(4) {
			s.add(3000+i*2000, trace.Sample, 0, victim, stackOf(victim, true, 200))
		}
	}
}

func spinsIn(function string) func(n *Names) {
	return func(n *Names) {
		n.Task = nil
		n.Code = func(int, uint64) string { return function + "+0x3 (libc.so.6)" }
	}
}
