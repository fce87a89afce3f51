package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
	"golang.org/x/time/rate"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/metrics"
	"github.com/tailcam/tailcam/internal/peers"
	"github.com/tailcam/tailcam/internal/trigger"
	"github.com/tailcam/tailcam/internal/version"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// maxPeerConns is how many peers may be connected.
const maxPeerConns = 1024

// peering is what this daemon has to do with those of other machines.
type peering struct {
	run      string
	server   *metrics.Server        // nil: nobody may tell this one. Written as daemon.webhook is.
	address  atomic.Pointer[string] // of server
	serving  replaceable
	sender   atomic.Pointer[peers.Sender] // nil: nobody is told
	telling  replaceable
	counts   peers.Counts
	refused  *xsync.Counter // reports beyond the limits
	contexts *rate.Limiter  // of looks at the contexts of all threads

	contextsFailed atomic.Bool
	reports        atomic.Uint64 // outliers of peers
	seen           atomic.Uint64 // of these, those of traces in which this host took part
}

// openPeers listens and prepares to send as peers says.
func (d *daemon) openPeers() error {
	d.peers.run, d.peers.refused = rand.Text(), xsync.NewCounter()
	d.peers.contexts = rate.NewLimiter(contextsRate, contextsRate)
	return d.usePeers(d.cfg)
}

// usePeers does as a configuration says, and no longer as the one before.
func (d *daemon) usePeers(c *config.Config) error {
	if err := d.sendPeers(&c.Peers); err != nil {
		return err
	}
	return d.servePeers(&c.Peers)
}

func (d *daemon) sendPeers(c *config.Peers) error {
	if len(c.Send) == 0 {
		d.peers.sender.Store(nil)
		d.peers.telling.replace(nil)
		return nil
	}
	certificates, err := clientTLS("peers", &c.TLS)
	if err != nil {
		return err
	}
	sender, err := peers.New(&peers.Options{
		URLs: c.Send, Credentials: c.Credentials, TLS: certificates, Host: d.host, Run: d.peers.run, Version: version.String(),
		Counts: &d.peers.counts, Guard: d.guard, Log: d.log.Named("peers"),
	})
	if err != nil {
		return err
	}
	d.peers.sender.Store(sender)
	d.peers.telling.replace(sender.Run)
	return nil
}

func (d *daemon) servePeers(c *config.Peers) error {
	if err := d.closePeers(); err != nil || c.Listen == "" { // the new one may have the same port
		return err
	}
	if c.Reachable() {
		if err := authenticates(c.WebConfig); err != nil {
			return fmt.Errorf("peers.web_config %s: %w", c.WebConfig, err)
		}
	}
	log := d.log.Named("peers")
	server, err := metrics.Listen(&metrics.ListenOptions{
		Key: "peers", Address: c.Listen, WebConfig: c.WebConfig, Group: d.cfg.Socket.Group, Conns: maxPeerConns, Log: log,
	})
	if err != nil {
		return err
	}
	d.peers.server = server
	address := server.Address()
	d.peers.address.Store(&address)
	d.peers.serving.replace(func(ctx context.Context) {
		d.log.Info("taking traces of peers", zap.String("address", address), zap.String("path", api.PeersPath))
		handler := api.PeerHandler(d, d.peers.refused, &api.ServeOptions{Log: log, Guard: d.guard})
		if err := server.ServeHandler(ctx, handler); err != nil { // no peer ends the daemon
			d.log.Error("take traces of peers", zap.Error(err))
		}
	})
	return nil
}

// closePeers ends requests in progress and stops listening.
func (d *daemon) closePeers() error {
	if d.peers.server == nil {
		return nil
	}
	d.peers.serving.replace(nil)
	server := d.peers.server
	d.peers.server = nil
	d.peers.address.Store(nil)
	return server.Close()
}

// authenticates checks that a web configuration of the exporter toolkit, which is valid
// otherwise, lets in only those who prove who they are.
func authenticates(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c struct {
		TLS struct {
			Clients string `yaml:"client_auth_type"`
		} `yaml:"tls_server_config"`
		Users map[string]any `yaml:"basic_auth_users"`
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return err
	}
	if len(c.Users) == 0 && c.TLS.Clients != "RequireAndVerifyClientCert" {
		return errors.New("anybody could have snapshots taken: must have basic_auth_users, or client_auth_type: RequireAndVerifyClientCert")
	}
	return nil
}

// tellPeers tells other machines of an outlier that belongs to a trace and has a snapshot. What
// another machine's outlier has caused is told to nobody.
func (d *daemon) tellPeers(o *events.Outlier) {
	sender := d.peers.sender.Load()
	if sender == nil || o.Snapshot == nil || o.Trigger != nil && o.Trigger.Peer != nil {
		return
	}
	known := o.Enrichment.Known()
	trace, _, ok := known.TraceContext()
	if !ok {
		return
	}
	sender.Tell(peers.Outlier{
		TraceID: hex.EncodeToString(trace[:]), ID: o.ID, Rule: o.Rule, Delay: time.Duration(o.DelayNS), End: o.Time, Snapshot: *o.Snapshot,
	})
}

// PeerReport implements api.PeerBackend.
func (d *daemon) PeerReport(r *api.PeerReport) *api.PeerAnswer {
	a := &api.PeerAnswer{Host: d.host, Own: r.Run == d.peers.run, Outliers: []api.PeerAnswerOutlier{}}
	if a.Own {
		return a
	}
	d.peers.reports.Add(uint64(len(r.Outliers)))
	wanted := map[string]*peerTrace{}
	now := linux.Monotonic()
	for i := range r.Outliers {
		o := &r.Outliers[i]
		if d.triggers.WantsPeer(&trigger.Peer{PeerOutlier: o.About(r.Host), TraceID: o.TraceID}) {
			end := now - min(uint64(o.AgeNS), now)
			wanted[o.TraceID] = &peerTrace{begin: end - min(uint64(o.DelayNS), end)}
		}
	}
	d.findTraces(wanted, now)
	for i := range r.Outliers {
		a.Outliers = append(a.Outliers, d.peerOutlier(r.Host, &r.Outliers[i], wanted[r.Outliers[i].TraceID]))
	}
	return a
}

// peerOutlier passes one outlier of a peer to the rules. did is nil if none wants it.
func (d *daemon) peerOutlier(host string, o *api.PeerReportOutlier, did *peerTrace) api.PeerAnswerOutlier {
	answer := api.PeerAnswerOutlier{TraceID: o.TraceID}
	if did == nil {
		return answer
	}
	answer.Seen, answer.Snapshots = len(did.parts), did.snapshots
	if answer.Seen+len(answer.Snapshots) > 0 {
		d.peers.seen.Add(1)
	}
	answer.Wanted, answer.Fired = d.triggers.Peer(&trigger.Peer{PeerOutlier: o.About(host), TraceID: o.TraceID}, did.parts)
	return answer
}

// peerError is why a rule on traces of other machines is inactive.
func (d *daemon) peerError(r *rules.Rule) error {
	if r.Trigger != nil && r.Trigger.Trace != nil && d.peers.address.Load() == nil {
		return errors.New("no other machine can tell of its outliers: set peers.listen")
	}
	return nil
}

// peersStatus returns nil if nobody is told, and nobody may tell.
func (d *daemon) peersStatus() *api.PeersStatus {
	sender, listen := d.peers.sender.Load(), d.peers.address.Load()
	if sender == nil && listen == nil {
		return nil
	}
	c := &d.peers.counts
	s := &api.PeersStatus{
		Told: c.Told.Load(), Answered: c.Seen.Load(), Reported: d.peers.reports.Load(), TookPart: d.peers.seen.Load(),
	}
	if sender != nil {
		s.Peers = sender.Peers()
	}
	if listen != nil {
		s.Listen = *listen
	}
	return s
}

// peerLosses lists what was not told, or not looked at.
func (d *daemon) peerLosses() []api.Loss {
	if d.peersStatus() == nil {
		return nil
	}
	c := &d.peers.counts
	return []api.Loss{
		{Cause: "peer_dropped", Count: c.Dropped.Load(),
			Advice: "more outliers in traces than other machines are told of: 64 each second; raise the rules' thresholds or snapshot.every"},
		{Cause: "peer_failed", Count: c.Failed.Load(),
			Advice: "a machine of peers.send did not answer in time, or refused: see the log, peers.credentials and peers.tls"},
		{Cause: "peer_refused", Count: uint64(d.peers.refused.Value()),
			Advice: "other machines tell of outliers faster than 5 times a second each, or 50 times all together: raise their rules' thresholds"},
	}
}
