package daemon

import (
	"slices"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/outbox"
)

// openUploads prepares the outbox if upload.target is set.
func (d *daemon) openUploads() error { return d.sendSnapshots(d.cfg) }

// sendSnapshots sends as a configuration says, and no longer as the one before. No target
// and no spool ends the daemon.
func (d *daemon) sendSnapshots(c *config.Config) error {
	u := &c.Upload
	if u.Target == "" {
		d.outbox.Store(nil)
		d.uploading.replace(nil)
		return nil
	}
	out, err := outbox.New(&outbox.Options{
		Spool: u.Spool, Snapshots: d.store.Dir(), Target: u.Target, Host: d.host, Credentials: u.Credentials, KnownHosts: u.KnownHosts, CA: u.CA,
		S3Endpoint: u.S3.Endpoint, S3Region: u.S3.Region, Bandwidth: u.Bandwidth, Quota: u.Quota, MinFree: c.Snapshots.MinFree, Age: u.Age, Redact: u.Redact,
		Executable: d.cfg.Self, Counts: &d.uploaded, Log: d.log.Named("upload"), Guard: d.guard,
	})
	if err != nil {
		return err
	}
	d.uploading.replace(nil) // the spool is one outbox's at a time
	d.outbox.Store(out)
	d.log.Info("sending snapshots", zap.String("target", u.Target), zap.String("spool", u.Spool))
	d.uploading.replace(out.Run)
	return nil
}

// setMinFree changes what snapshots, uploads and OTLP leave free.
func (d *daemon) setMinFree(c *config.Config) error {
	d.store.SetMinFree(uint64(c.Snapshots.MinFree))
	if out := d.outbox.Load(); out != nil {
		out.SetMinFree(c.Snapshots.MinFree)
	}
	if exporter := d.collector.Load(); exporter != nil {
		exporter.SetMinFree(c.Snapshots.MinFree)
	}
	return nil
}

// upload holds a snapshot and returns what sends it, once it is as it will be.
func (d *daemon) upload(id string) func() {
	release := d.store.Hold(id)
	return func() {
		if out := d.outbox.Load(); out != nil {
			out.Add(id, release)
			return
		}
		release()
	}
}

// snapshotURL is where a snapshot is sent to; empty: nowhere, or nowhere to link to.
func (d *daemon) snapshotURL(id string) string {
	u := &d.now.Load().Upload
	return outbox.Link(u.Target, d.host, id, u.Redact)
}

// uploadStatus returns nil if nothing is sent.
func (d *daemon) uploadStatus() *api.UploadStatus {
	out := d.outbox.Load()
	if out == nil {
		return nil
	}
	s := out.Status()
	u := &api.UploadStatus{
		Target: s.Target, State: s.State, Error: s.Error, Waiting: s.Waiting, WaitingBytes: s.Bytes,
		Sent: s.Sent, Existed: s.Existed, SentBytes: s.SentBytes, Failed: s.Failed,
	}
	if !s.Next.IsZero() {
		u.Next = &s.Next
	}
	if !s.Last.IsZero() {
		u.Last = &s.Last
	}
	return u
}

// uploadLosses lists the snapshots that were not sent, also those of rules that are no more.
func (d *daemon) uploadLosses(names []string) []api.Loss {
	if d.outbox.Load() == nil {
		return nil
	}
	advice := map[string]string{
		outbox.LostQuota:     "more waited than upload.quota, or than leaves snapshots.min_free: see why the target takes too little, or raise upload.quota",
		outbox.LostExpired:   "they waited for upload.age: see why the target does not take them",
		outbox.LostRedaction: "they could not be redacted, so that nothing of them was sent: the log says why, and tailcam snapshots verify what is damaged",
		outbox.LostMissed:    "they were removed before they were packed: raise snapshots.keep, or use a faster disk",
	}
	var list []api.Loss
	for _, cause := range outbox.Causes {
		lost := d.uploaded.Lost(cause)
		rules := slices.Clone(names)
		for rule := range lost {
			if !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
		for _, rule := range rules {
			list = append(list, api.Loss{Cause: cause, Rule: rule, Count: lost[rule], Advice: advice[cause]})
		}
	}
	return list
}
