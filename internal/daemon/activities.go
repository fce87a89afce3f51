package daemon

import (
	"cmp"
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/internal/activities/watch"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/rules"
)

// openActivities loads the kernel side of accounts, and listens for those who shall see
// nothing else. Without it everything else works.
func (d *daemon) openActivities() (err error) {
	c := &d.cfg.Activities
	if !c.Enabled {
		return nil
	}
	d.activities, err = activities.New(&activities.Options{
		Groups: c.Groups, UserMemory: c.UserMemory, Memory: c.Memory, Log: d.log.Named("activities"),
	})
	if err != nil {
		d.log.Warn("no accounts of activities", zap.Error(err))
		d.noActivities = api.ActivitiesFailed(err)
	} else {
		for program, err := range d.activities.Missing() {
			d.log.Info("not in accounts on this kernel", zap.String("program", program), zap.Error(err))
		}
	}
	if c.Socket == "" {
		return nil
	}
	d.public, err = api.Listen(&api.ListenOptions{Path: c.Socket, Group: d.cfg.Socket.Group, Public: true, Log: d.log})
	if err != nil && d.activities != nil {
		err = errors.Join(err, d.activities.Close())
	}
	return err
}

// whyNoActivities is why there are no accounts.
func (d *daemon) whyNoActivities() error { return cmp.Or(d.noActivities, api.ErrActivitiesDisabled) }

// logWithoutActivities logs rules that want activities, if there are none.
func (d *daemon) logWithoutActivities(list []rules.Rule) {
	if d.activities != nil {
		return
	}
	for i := range list {
		if lacks := list[i].WithoutActivities(); lacks != "" {
			d.log.Warn("rule does less than it says: "+lacks, zap.String("rule", list[i].Name), zap.Error(d.whyNoActivities()))
		}
	}
}

// activitiesStatus is what is known of activities; nil: they are not enabled.
func (d *daemon) activitiesStatus() *api.ActivitiesStatus {
	if d.contexts == nil {
		return nil
	}
	s := &api.ActivitiesStatus{Publishers: d.contexts.Publishers()}
	if d.activities == nil {
		s.Error = d.whyNoActivities().Error()
		return s
	}
	opened := d.activities.Counts()
	s.Processes, s.Bytes, s.Refused = opened.Processes, opened.Bytes, opened.Refused
	used := d.requests.Use()
	s.LiveTokens, s.Threads = used.LiveTokens, used.Threads
	counts, _ := d.requests.Counts()
	s.TokensRefused, s.ThreadsRefused = counts.TokensRefused, counts.ThreadsRefused
	return s
}

func (d *daemon) closeActivities() error {
	var errs []error
	if d.public != nil {
		errs = append(errs, d.public.Close())
	}
	if d.activities != nil {
		errs = append(errs, d.activities.Close())
	}
	return errors.Join(errs...)
}

// serveActivities serves the socket that serves nothing else until ctx is done.
func (d *daemon) serveActivities(ctx context.Context) error {
	if d.public == nil {
		return nil
	}
	return api.ServeActivities(ctx, d.public, d, d.serveOptions())
}

func (d *daemon) serveOptions() *api.ServeOptions {
	return &api.ServeOptions{Log: d.log.Named("api"), Guard: d.guard}
}

// OpenActivities implements api.Opener.
func (d *daemon) OpenActivities(o *activities.Opening) (api.OpenedActivities, error) {
	if d.activities == nil {
		return nil, d.whyNoActivities()
	}
	p, err := d.activities.Open(o)
	if err != nil {
		return nil, err
	}
	return opened{p, d.requests}, nil
}

// opened is a process that has opened, for those who hold and follow it.
type opened struct {
	*activities.Process
	requests *watch.Watcher
}

// Slow implements api.OpenedActivities.
func (o opened) Slow(token uint32) { o.requests.Slow(o.Key(), token) }

// Read implements watch.Process.
func (o opened) Read(fn func(m *watch.Maps)) {
	o.Process.Read(func(shared, accounts []byte) {
		fn(&watch.Maps{Shared: shared, Accounts: accounts, Threads: o.Threads(), Tokens: o.Tokens(), Attributes: o.Attributes()})
	})
}

// openedProcesses lists the processes that have opened.
func (d *daemon) openedProcesses() []watch.Process {
	list := d.activities.Processes()
	out := make([]watch.Process, len(list))
	for i, p := range list {
		out[i] = opened{p, d.requests}
	}
	return out
}
