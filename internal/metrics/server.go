package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"github.com/tailcam/tailcam/internal/api"
)

// Path is where the metrics are.
const Path = "/metrics"

// Bounds of what clients may cause.
const (
	maxConns      = 32 // unless ListenOptions says otherwise
	maxScrapes    = 4  // in progress; more get status 503
	scrapeTimeout = 10 * time.Second
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	closeTimeout  = 2 * time.Second
	maxHeader     = 16 << 10 // bytes
)

// unixPrefix begins an address that is the path of a unix socket.
const unixPrefix = "unix:"

// ListenOptions say where to serve. Address is required.
type ListenOptions struct {
	Key     string // of the configuration, in errors; empty: metrics
	Address string // HOST:PORT, or unix:PATH
	// WebConfig is a web configuration file of the exporter toolkit, for TLS and
	// basic authentication; empty: neither.
	WebConfig string
	Group     string      // may use a unix socket
	Conns     int         // at the same time; 0: 32. Further ones wait in the kernel's queue.
	Log       *zap.Logger // nil: silent
}

// Server serves metrics, or another handler, as the exporter toolkit does. Clients that
// connect before Serve wait.
type Server struct {
	opts     ListenOptions
	log      *zap.Logger
	listener net.Listener
	socket   *api.Socket // nil: TCP
}

// Listen checks the web configuration and listens.
func Listen(opts *ListenOptions) (*Server, error) {
	s := &Server{opts: *opts, log: opts.Log}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	s.opts.Key, s.opts.Conns = cmp.Or(opts.Key, "metrics"), cmp.Or(opts.Conns, maxConns)
	if err := web.Validate(opts.WebConfig); err != nil {
		return nil, fmt.Errorf("%s.web_config %s: %w", s.opts.Key, opts.WebConfig, err)
	}
	if path, ok := strings.CutPrefix(opts.Address, unixPrefix); ok {
		socket, err := api.Listen(&api.ListenOptions{Path: path, Group: opts.Group, Log: s.log})
		if err != nil {
			return nil, fmt.Errorf("%s.listen %s: %w", s.opts.Key, opts.Address, err)
		}
		s.socket, s.listener = socket, socket.Listener()
		return s, nil
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", opts.Address)
	if err != nil {
		return nil, fmt.Errorf("%s.listen %s: %w", s.opts.Key, opts.Address, err)
	}
	s.listener = l
	return s, nil
}

// Address is where the server listens; of TCP with the port that the kernel chose for 0.
func (s *Server) Address() string {
	if s.socket != nil {
		return unixPrefix + s.socket.Path
	}
	return s.listener.Addr().String()
}

// Close stops listening and removes a unix socket.
func (s *Server) Close() error {
	if s.socket != nil {
		return s.socket.Close()
	}
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Serve answers scrapes until the context ends: see ServeHandler.
func (s *Server) Serve(ctx context.Context, registry *prometheus.Registry) error {
	return s.ServeHandler(ctx, s.handler(registry))
}

// ServeHandler answers requests until the context ends. A server that fails is logged, and
// ends alone. The web configuration is read again for each connection.
func (s *Server) ServeHandler(ctx context.Context, handler http.Handler) error {
	quiet, err := zap.NewStdLogAt(s.log, zap.DebugLevel)
	if err != nil {
		return fmt.Errorf("serve %s: %w", s.opts.Key, err)
	}
	srv := &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          quiet,
	}
	failed := make(chan error, 1)
	go func() {
		failed <- web.Serve(netutil.LimitListener(s.listener, s.opts.Conns), srv,
			&web.FlagConfig{WebConfigFile: &s.opts.WebConfig}, slog.New(slog.NewTextHandler(quiet.Writer(), nil)))
	}()
	select {
	case err := <-failed:
		s.log.Error(s.opts.Key+" are no longer served: restart tailcam", zap.String("address", s.Address()), zap.Error(err))
		return nil
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if srv.Shutdown(closing) != nil {
		_ = srv.Close() // what is left is a client's own connection
	}
	return nil
}

func (s *Server) handler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: scrapeLog{s.log}, ErrorHandling: promhttp.ContinueOnError, Registry: registry,
		MaxRequestsInFlight: maxScrapes, CoalesceGather: true, Timeout: scrapeTimeout, EnableOpenMetrics: true,
	}))
	return mux
}

// scrapeLog implements promhttp.Logger.
type scrapeLog struct{ log *zap.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(v ...any) {
	l.log.Warn("scrape", zap.String("error", strings.TrimSpace(fmt.Sprintln(v...))))
}
