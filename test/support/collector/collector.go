// Package collector is an OpenTelemetry collector for tests: the services of OTLP as
// they are defined officially, over gRPC and over HTTP, that keep what they receive.
package collector

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // as collectors have it
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	logspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
)

// Collector keeps what it receives. Its methods may be called concurrently.
type Collector struct {
	URL string

	// Answer, if set, is asked for the error of each request, which is then not kept.
	Answer func() error

	mu      sync.Mutex
	logs    []*logspb.ExportLogsServiceRequest
	metrics []*metricspb.ExportMetricsServiceRequest
	headers []map[string][]string
}

// GRPC starts a collector that speaks OTLP/gRPC without TLS.
func GRPC(t *testing.T) *Collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	c := &Collector{URL: "http://" + l.Addr().String()}
	s := grpc.NewServer()
	logspb.RegisterLogsServiceServer(s, &logsService{c: c})
	metricspb.RegisterMetricsServiceServer(s, &metricsService{c: c})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() {
		s.Stop()
		<-ended
	})
	return c
}

type logsService struct {
	logspb.UnimplementedLogsServiceServer
	c *Collector
}

// Export implements logspb.LogsServiceServer.
func (s *logsService) Export(ctx context.Context, r *logspb.ExportLogsServiceRequest) (*logspb.ExportLogsServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	return &logspb.ExportLogsServiceResponse{}, s.c.keep(md, func() { s.c.logs = append(s.c.logs, r) })
}

type metricsService struct {
	metricspb.UnimplementedMetricsServiceServer
	c *Collector
}

// Export implements metricspb.MetricsServiceServer.
func (s *metricsService) Export(ctx context.Context, r *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	return &metricspb.ExportMetricsServiceResponse{}, s.c.keep(md, func() { s.c.metrics = append(s.c.metrics, r) })
}

func (c *Collector) keep(headers map[string][]string, add func()) error {
	if c.Answer != nil {
		if err := c.Answer(); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, headers)
	add()
	return nil
}

// ServeHTTP implements http.Handler: OTLP/HTTP.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request, answer proto.Message = &logspb.ExportLogsServiceRequest{}, &logspb.ExportLogsServiceResponse{}
	if r.URL.Path == "/v1/metrics" {
		request, answer = &metricspb.ExportMetricsServiceRequest{}, &metricspb.ExportMetricsServiceResponse{}
	} else if r.URL.Path != "/v1/logs" {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if z, bad := gzip.NewReader(bytes.NewReader(body)); bad == nil && r.Header.Get("Content-Encoding") == "gzip" {
		body, err = io.ReadAll(z)
	}
	if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, request) != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	err = c.keep(r.Header, func() {
		switch r := request.(type) {
		case *logspb.ExportLogsServiceRequest:
			c.logs = append(c.logs, r)
		case *metricspb.ExportMetricsServiceRequest:
			c.metrics = append(c.metrics, r)
		}
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	b, err := proto.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(b) // the client may be gone
}
