package explain

import "cmp"

// Connection is an established connection of TCP. Both ends are ADDRESS:PORT.
type Connection struct {
	Local, Remote string
	Accepted      bool // the remote side opened it
}

// Sockets tells which side of its connections a process is on.
type Sockets struct {
	Listens     bool
	Accepted    int  // connections that others opened
	Opened      int  // connections that it opened
	Partial     bool // it had more
	Connections []Connection
}

// serves reports whether others have opened connections to the process, or may.
func (s *Sockets) serves() bool { return s.Listens || s.Accepted > 0 }

// serves reports whether others have opened connections to a process, or may, as far as is known.
func (m *model) serves(pid int) bool {
	s, ok := m.sockets(pid)
	return ok && s.serves()
}

// dedicated reports whether a process serves one connection and no other.
func (s *Sockets) dedicated() bool { return !s.Listens && s.Accepted == 1 && !s.Partial }

// role is whether a process is the client of another.
type role uint8

const (
	roleUnknown role = iota
	roleClient       // it is
	roleOther        // it is not: the other is its client, its parent or its sibling
)

func (m *model) sockets(pid int) (Sockets, bool) {
	if m.names.Sockets == nil || pid <= 0 {
		return Sockets{}, false
	}
	return m.names.Sockets(pid)
}

// pidOf returns a task's process; 0: not known.
func (m *model) pidOf(tid int) int {
	if t := m.tasks[tid]; t != nil && t.pid != 0 {
		return t.pid
	}
	f, _ := m.taskInfo(tid)
	return f.PID
}

// roleOf tells whether a process is a client of a server: by the connections between them,
// or else by which of them others connect to, and whether the server connects to any.
func (m *model) roleOf(client, server int) role {
	key := [2]int{client, server}
	r, known := m.roles[key]
	if !known {
		r = m.findRole(client, server)
		if len(m.roles) < maxOpen {
			m.roles[key] = r
		}
	}
	return r
}

func (m *model) findRole(client, server int) role {
	if client == server || client <= 0 || server <= 0 {
		return roleOther
	}
	c, cKnown := m.sockets(client)
	s, sKnown := m.sockets(server)
	asks, answers := between(&c, &s)
	switch {
	case asks && answers:
		return roleUnknown
	case asks:
		return roleClient
	case answers:
		return roleOther
	}
	switch {
	case m.parent(client) == server, m.besides(client, server):
		return roleOther // a worker of the server, or another one beside it
	case sKnown && s.serves() && cKnown && !c.serves() && !c.Partial:
		return roleClient
	case sKnown && s.serves() && s.Opened == 0 && !s.Partial && !cKnown:
		return roleClient // it has ended, and the server is nobody's client
	case cKnown && c.serves() && (!sKnown || !s.serves()):
		return roleOther
	}
	return roleUnknown
}

// between tells whether one process has opened a connection to the other, and the reverse.
func between(client, server *Sockets) (asks, answers bool) {
	for i := range client.Connections {
		a := &client.Connections[i]
		for j := range server.Connections {
			b := &server.Connections[j]
			if a.Local == b.Remote && a.Remote == b.Local {
				asks = asks || b.Accepted && !a.Accepted
				answers = answers || a.Accepted && !b.Accepted
			}
		}
	}
	return asks, answers
}

// parentOf reports whether a process has started another.
func (m *model) parentOf(parent, child int) bool { return parent > 1 && m.parent(child) == parent }

// parent returns the process that has started another; 0: not known.
func (m *model) parent(pid int) int {
	if f, ok := m.taskInfo(pid); ok && f.PPID > 0 {
		return f.PPID
	}
	if t := m.tasks[pid]; t != nil && t.parent != t.pid {
		return t.parent
	}
	return 0
}

// besides reports whether two processes have one parent, and one name.
func (m *model) besides(a, b int) bool {
	p, name := m.parent(a), m.whoTask(a).Comm
	return p > 1 && p == m.parent(b) && name != "" && name == m.whoTask(b).Comm
}

// dedicated reports whether a process serves one other process, as those that a server forks for
// each connection. Of those that have ended, their connections are not known: then the others
// that it has had to do with in the history must be one, beside its parent and those that this
// has made as well.
func (m *model) dedicated(pid int) bool {
	if s, ok := m.sockets(pid); ok && (s.serves() || s.Partial) {
		return s.dedicated()
	}
	if is, known := m.alone[pid]; known {
		return is
	}
	peer, many := 0, m.parent(pid) <= 1
	see := func(tid int) {
		p := cmp.Or(m.pidOf(tid), tid)
		if tid == 0 || p == pid || p == peer || m.kernelThread(tid) || m.parentOf(p, pid) || m.besides(p, pid) {
			return
		}
		many = many || peer != 0
		peer = p
	}
	for _, tid := range m.threadsOf(pid) {
		t := m.tasks[tid]
		for i := range len(t.before) + len(t.segments) {
			if s := t.kept(i); !many && s.state == blocked && s.wake != nil && m.waitsForInput(t, s) {
				see(m.sender(s.wake))
			}
		}
		for _, r := range m.repliesOf(tid) {
			see(r.tid)
		}
	}
	if m.alone == nil {
		m.alone = map[int]bool{}
	}
	m.alone[pid] = peer != 0 && !many
	return m.alone[pid]
}

// address returns the client's end of the only connection that a client may have to a
// server; "": there are several, or none that is known. With client 0, of the only one that
// the server has at all.
func (m *model) address(client, server int) string {
	s, ok := m.sockets(server)
	if !ok || s.Partial || client == 0 && !s.dedicated() {
		return ""
	}
	c, _ := m.sockets(client)
	found := ""
	for i := range s.Connections {
		b := &s.Connections[i]
		if !b.Accepted {
			continue
		}
		mine := client == 0
		for j := range c.Connections {
			mine = mine || c.Connections[j].Local == b.Remote && c.Connections[j].Remote == b.Local
		}
		switch {
		case mine && found != "":
			return ""
		case mine:
			found = b.Remote
		}
	}
	return found
}
