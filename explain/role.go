package explain

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
// or else by which of them others connect to.
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
	cf, _ := m.taskInfo(client)
	sf, _ := m.taskInfo(server)
	switch {
	case cf.PPID == server, cf.PPID > 1 && cf.PPID == sf.PPID && cf.Comm == sf.Comm:
		return roleOther // a worker of the server, or another one beside it
	case sKnown && s.serves() && cKnown && !c.serves() && !c.Partial:
		return roleClient
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
func (m *model) parentOf(parent, child int) bool {
	f, ok := m.taskInfo(child)
	return ok && parent > 1 && f.PPID == parent
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
