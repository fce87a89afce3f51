package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
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
func (d *daemon) openOTLP() error {
	c := &d.cfg.OTLP
	if c.Endpoint == "" {
		return nil
	}
	tls, err := otlpTLS(&c.TLS)
	if err != nil {
		return err
	}
	opts := &otlp.Options{
		Endpoint: c.Endpoint, Protocol: c.Protocol, Headers: c.Headers, TLS: tls, Resource: c.Resource,
		Version: version.String(), Logs: slices.Contains(c.Signals, "logs"), Interval: c.Interval, Start: d.start,
		Log: d.log.Named("otlp"), Guard: d.guard,
	}
	if slices.Contains(c.Signals, "metrics") {
		opts.Metrics = d.registry
	}
	if d.collector, err = otlp.New(opts); err != nil {
		return fmt.Errorf("otlp.endpoint %q %w", c.Endpoint, err)
	}
	return nil
}

// otlpTLS reads the certificates; the client's is read again for each connection.
func otlpTLS(c *config.OTLPTLS) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("otlp.tls.ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("otlp.tls.ca: %s has no certificate in PEM", c.CA)
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("set both otlp.tls.cert and otlp.tls.key, or neither")
	}
	if c.Cert == "" {
		return t, nil
	}
	if _, err := tls.LoadX509KeyPair(c.Cert, c.Key); err != nil {
		return nil, fmt.Errorf("otlp.tls.cert, otlp.tls.key: %w", err)
	}
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		return &pair, err
	}
	return t, nil
}

// sendOTLP sends until ctx ends. No collector ends the daemon.
func (d *daemon) sendOTLP(ctx context.Context) error {
	d.log.Info("sending OTLP", zap.String("endpoint", d.cfg.OTLP.Endpoint), zap.String("protocol", d.cfg.OTLP.Protocol),
		zap.Strings("signals", d.cfg.OTLP.Signals))
	return d.collector.Run(ctx)
}

// exportExplained hands the outliers of a snapshot that was written, or has failed, to
// the exporter.
func (d *daemon) exportExplained(done *snapshot.Done) {
	d.collector.Explain(done.Outliers, done.Err != nil)
}

// otlpStatus returns nil if nothing is sent.
func (d *daemon) otlpStatus() *api.OTLPStatus {
	if d.collector == nil {
		return nil
	}
	s := &api.OTLPStatus{Endpoint: d.cfg.OTLP.Endpoint, Protocol: d.cfg.OTLP.Protocol, Waiting: d.collector.Waiting()}
	for _, r := range d.collector.Results() {
		s.Requests = append(s.Requests, api.OTLPRequests{Signal: r.Signal, Result: r.Result, Count: r.Count})
	}
	return s
}

// otlpLosses lists the outliers that the collector did not take.
func (d *daemon) otlpLosses(names []string) []api.Loss {
	if d.collector == nil {
		return nil
	}
	var list []api.Loss
	dropped, rejected := d.collector.Losses()
	for _, rule := range append([]string{""}, names...) {
		if rule != "" {
			list = append(list, api.Loss{Cause: "otlp_dropped", Rule: rule, Count: dropped[rule],
				Advice: "the collector was down or slow: see the log; or raise the rule's threshold"})
		}
		list = append(list, api.Loss{Cause: "otlp_rejected", Rule: rule, Count: rejected[rule],
			Advice: "the collector refused them: see the log, otlp.endpoint, otlp.protocol and otlp.headers"})
	}
	return list
}
