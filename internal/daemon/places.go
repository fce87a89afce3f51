package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/containers"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/install"
)

const (
	// runtimeTime is how long naming an outlier waits for container runtimes, last of all.
	runtimeTime = 300 * time.Millisecond
	// followEvery is how often conditions are decided anew if a container runtime did not
	// answer, or did not know a container.
	followEvery = 5 * time.Second
)

// useContainers asks the container runtimes of a configuration, and no longer those of the
// one before. What those had told is asked for again when it is needed.
func (d *daemon) useContainers(c *config.Containers) error {
	o := containers.Options{Labels: c.Labels, Log: d.log.Named("containers")}
	for _, s := range c.Sockets {
		socket, err := containers.ParseSocket(s)
		if err != nil {
			return err
		}
		o.Sockets = append(o.Sockets, socket)
	}
	if before := d.containers.Swap(containers.New(&o)); before != nil {
		return before.Close()
	}
	return nil
}

// reloadContainers does so while rules run, which may know pods now that had no names.
func (d *daemon) reloadContainers(c *config.Config) error {
	if err := d.useContainers(&c.Containers); err != nil || !d.kernel.NeedRuntime() {
		return err
	}
	d.undecided.Store(2) // what is asked now is answered by the second tick of followContainers at the latest
	return d.kernel.TeachCgroups()
}

// closeContainers ends the questions under way.
func (d *daemon) closeContainers() error { return d.containers.Load().Close() }

func (d *daemon) cgroups() cgroups { return cgroups{d.hosts, &d.containers} }

// cgroups implements install.Cgroups. None of its methods waits for a runtime.
type cgroups struct {
	table      *process.Table
	containers *atomic.Pointer[containers.Lookup]
}

func (c cgroups) CgroupPath(id uint64) (string, error) { return c.table.CgroupPath(id) }

// WalkCgroups visits nothing without cgroup v2, where all tasks are in "/".
func (c cgroups) WalkCgroups(visit func(id uint64, path string)) error {
	err := c.table.Walk(visit)
	if errors.Is(err, process.ErrNoCgroup2) {
		return nil
	}
	return err
}

// PlaceOf also asks for a container that nobody has asked for before, so that its names
// are known when they are needed.
func (c cgroups) PlaceOf(path string) install.CgroupPlace {
	at := process.PlaceOf(path)
	found, state := containers.Container{}, containers.Unknown
	if asksRuntime(&at) {
		found, state = c.containers.Load().Get(at.Container, at.Runtime)
	}
	return install.CgroupPlace{
		Place: rules.Place{
			Cgroup: path, Unit: at.Unit, Container: at.Container, ContainerName: containerName(&at, &found),
			Pod: found.Pod, Namespace: found.Namespace,
		},
		Pending: state == containers.Asked,
	}
}

// asksRuntime reports whether a runtime knows more of a container than its cgroup says.
func asksRuntime(at *process.Place) bool {
	return at.Container != "" && at.Runtime != process.LXC && at.Runtime != process.Nspawn
}

// containerName is what the runtime calls a container, or what its cgroup does.
func containerName(at *process.Place, found *containers.Container) string {
	if at.Container != "" && !asksRuntime(at) {
		return at.Container
	}
	return found.Name
}

// place is what is known of a cgroup, by its path, after at most limit. container is its
// container as far as that is known: on cgroup v1, another path tells it.
func (d *daemon) place(path, container string, limit time.Duration) events.Place {
	at := process.PlaceOf(path)
	if at.Container == "" {
		at.Container = container
	}
	p := events.Place{Unit: at.Unit, Runtime: at.Runtime, PodUID: at.PodUID}
	if !asksRuntime(&at) {
		p.ContainerName = at.Container
		return p
	}
	found, _ := d.containers.Load().Get(at.Container, at.Runtime)
	if limit > 0 {
		found, _ = d.containers.Load().Wait(at.Container, at.Runtime, limit)
	}
	p.ContainerName, p.Image, p.Workload = found.Name, found.Image, found.Labels
	p.Pod, p.Namespace = found.Pod, found.Namespace
	if p.Runtime == "" {
		p.Runtime = found.Runtime
	}
	if found.PodUID != "" {
		p.PodUID = found.PodUID
	}
	return p
}

// placeTasks says where tasks run, as far as that is known now.
func (d *daemon) placeTasks(tasks []snapshot.NamedTask) {
	type where struct{ cgroup, container string }
	known := map[where]events.Place{}
	for i := range tasks {
		t := &tasks[i]
		w := where{t.Cgroup, t.Container}
		at, ok := known[w]
		if !ok {
			at = d.place(t.Cgroup, t.Container, 0)
			known[w] = at
		}
		t.Place = at
	}
}

// followContainers decides conditions on containers and pods anew while one was asked for
// that is not known, as its runtime may have been down, or slow; and after a reload has
// changed the runtimes.
func (d *daemon) followContainers(ctx context.Context) error {
	var failed complaint
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pulse.After(followEvery):
		}
		err := d.survive(guard.Housekeeping, func() error {
			again := d.undecided.Load() > 0
			if again {
				d.undecided.Add(-1)
			}
			if !d.kernel.NeedRuntime() || !again && !d.containers.Load().Missing() {
				return nil
			}
			return d.kernel.TeachCgroups()
		})
		if ctx.Err() == nil && failed.isNew(err, time.Now()) {
			d.log.Warn("deciding conditions on containers failed and is tried again", zap.Error(err))
		}
	}
}

// identifyPeers says who the tasks are that an outlier names beside its own.
func (d *daemon) identifyPeers(o *events.Outlier) {
	replacePeers(o, func(p events.Peer) events.Peer {
		t := &o.Task
		switch {
		case p.PID <= 0:
			return p
		case p.PID == t.PID:
			p.Identity = &events.Identity{Title: t.Title, Cgroup: t.Cgroup, Container: t.Container, Place: t.Place}
			return p
		}
		id, err := d.hosts.IdentityOf(process.Seen{PID: p.PID, TID: p.TID, Comm: p.Comm, At: o.EndMono})
		if err == nil {
			p.Identity = &events.Identity{
				Title: id.Title, Cgroup: id.Cgroup, Container: id.Container, Place: d.place(id.Cgroup, id.Container, 0),
			}
		}
		return p
	})
}

// awaitPlaces adds what container runtimes answer within runtimeTime.
func (d *daemon) awaitPlaces(o *events.Outlier) {
	end := time.Now().Add(runtimeTime)
	place := func(cgroup, container string) events.Place {
		return d.place(cgroup, container, max(time.Until(end), time.Millisecond))
	}
	at := place(o.Task.Cgroup, o.Task.Container)
	o.Enrichment.Learn(func(o *events.Outlier) { o.Task.Place = at })
	replacePeers(o, func(p events.Peer) events.Peer {
		if p.Identity != nil {
			id := *p.Identity
			id.Place = place(id.Cgroup, id.Container)
			p.Identity = &id
		}
		return p
	})
}

// replacePeers replaces the tasks that an outlier names, as others may have copies of it.
func replacePeers(o *events.Outlier, with func(events.Peer) events.Peer) {
	waker, onCPU, entry := o.Waker, o.OnCPU, o.EntryTask
	if waker != nil {
		w := *waker
		w.Peer = with(w.Peer)
		waker = &w
	}
	if onCPU != nil {
		c := *onCPU
		c.Peer = with(c.Peer)
		onCPU = &c
	}
	if entry != nil {
		p := with(*entry)
		entry = &p
	}
	o.Enrichment.Learn(func(o *events.Outlier) { o.Waker, o.OnCPU, o.EntryTask = waker, onCPU, entry })
}
