package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/otlp"
	"github.com/tailcam/tailcam/internal/version"
	"github.com/tailcam/tailcam/snapshot"
)

// openOTLP prepares the exporter if otlp.endpoint is set.
func (d *daemon) openOTLP() error { return d.sendOTLP(&d.cfg.OTLP) }

// sendOTLP sends as a configuration says, and no longer as the one before. No collector
// ends the daemon.
func (d *daemon) sendOTLP(c *config.OTLP) error {
	if c.Endpoint == "" {
		d.collector.Store(nil)
		d.exporting.replace(nil)
		return nil
	}
	tls, err := clientTLS("otlp", &c.TLS)
	if err != nil {
		return err
	}
	opts := &otlp.Options{
		Endpoint: c.Endpoint, Protocol: c.Protocol, Headers: c.Headers, TLS: tls, Host: d.host, Resource: c.Resource, SnapshotURL: d.snapshotURL,
		Version: version.String(), Logs: slices.Contains(c.Signals, "logs"), Interval: c.Interval, Start: d.start,
		Spool: c.Spool, Quota: c.Quota, MinFree: d.now.Load().Snapshots.MinFree, Counts: &d.exported, Log: d.log.Named("otlp"), Guard: d.guard,
	}
	if slices.Contains(c.Signals, "metrics") {
		opts.Metrics = d.registry
	}
	exporter, err := otlp.New(opts)
	if err != nil {
		return fmt.Errorf("otlp.endpoint %q %w", c.Endpoint, err)
	}
	d.collector.Store(exporter)
	signals := c.Signals
	d.exporting.replace(func(ctx context.Context) {
		d.log.Info("sending OTLP", zap.String("endpoint", opts.Endpoint), zap.String("protocol", opts.Protocol),
			zap.Strings("signals", signals))
		_ = exporter.Run(ctx) // always nil
	})
	return nil
}

// clientTLS reads the certificates of a part of the configuration; the client's is read
// again for each connection.
func clientTLS(of string, c *config.ClientTLS) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("%s.tls.ca: %w", of, err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.tls.ca: %s has no certificate in PEM", of, c.CA)
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, fmt.Errorf("set both %[1]s.tls.cert and %[1]s.tls.key, or neither", of)
	}
	if c.Cert == "" {
		return t, nil
	}
	if _, err := tls.LoadX509KeyPair(c.Cert, c.Key); err != nil {
		return nil, fmt.Errorf("%[1]s.tls.cert, %[1]s.tls.key: %[2]w", of, err)
	}
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		return &pair, err
	}
	return t, nil
}

// exportExplained hands the outliers of a snapshot that was written, or has failed, to
// the exporter.
func (d *daemon) exportExplained(done *snapshot.Done) {
	d.collector.Load().Explain(done.Outliers, done.Err != nil)
}

// otlpStatus returns nil if nothing is sent.
func (d *daemon) otlpStatus() *api.OTLPStatus {
	exporter := d.collector.Load()
	if exporter == nil {
		return nil
	}
	s := &api.OTLPStatus{}
	s.Endpoint, s.Protocol = exporter.Target()
	s.Waiting, s.SpoolBytes, s.SpoolError = exporter.Waiting()
	for _, r := range exporter.Results() {
		s.Requests = append(s.Requests, api.OTLPRequests{Signal: r.Signal, Result: r.Result, Count: r.Count})
	}
	return s
}

// otlpLosses lists the outliers that the collector did not take.
func (d *daemon) otlpLosses(names []string) []api.Loss {
	exporter := d.collector.Load()
	if exporter == nil {
		return nil
	}
	var list []api.Loss
	dropped, rejected := exporter.Losses()
	for _, rule := range append([]string{""}, names...) {
		if rule != "" {
			list = append(list, api.Loss{Cause: "otlp_dropped", Rule: rule, Count: dropped[rule],
				Advice: "the collector was down or slow for longer than otlp.quota, or a queue of 1024, has room for: see the log; or raise it, or the rule's threshold"})
		}
		list = append(list, api.Loss{Cause: "otlp_rejected", Rule: rule, Count: rejected[rule],
			Advice: "the collector refused them: see the log, otlp.endpoint, otlp.protocol and otlp.headers"})
	}
	return list
}
