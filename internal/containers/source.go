package containers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/text"
)

// Protocols of sockets.
const (
	CRI    = "cri"    // containerd, CRI-O
	Docker = "docker" // Docker, Podman
)

// Socket is the socket of a container runtime.
type Socket struct{ Protocol, Path string }

// ParseSocket parses cri:PATH and docker:PATH.
func ParseSocket(s string) (Socket, error) {
	protocol, path, _ := strings.Cut(s, ":")
	switch {
	case protocol != CRI && protocol != Docker:
		return Socket{}, errors.New("is neither cri:PATH nor docker:PATH")
	case !filepath.IsAbs(path):
		return Socket{}, errors.New("has no absolute path")
	case len(path) > maxSocketPath:
		return Socket{}, errors.New("is too long for a socket")
	}
	return Socket{protocol, filepath.Clean(path)}, nil
}

// Limits of what is believed.
const (
	maxSocketPath = 107
	maxID         = 128
	maxName       = 256 // of names and labels, in bytes; 253 in Kubernetes
	maxAnswer     = 1 << 20
	maxQueue      = 256 // questions to a runtime that wait
	// questions to a runtime by second, and at once: ids are names of directories, so that
	// whoever may create cgroups may cause them.
	questionsRate, questionsBurst = 20, 200
	longestBreak                  = time.Minute
)

// errUnknown means that the runtime answers, and does not know the container.
var errUnknown = errors.New("unknown container")

// client asks a runtime for a container. The id has been checked.
type client interface {
	container(ctx context.Context, id string) (*Container, error)
	close()
}

type question struct {
	*entry
	hint string
}

// source is a runtime. Its fields are those of the goroutine of serve, but for the queue
// and the outcome.
type source struct {
	socket Socket
	opts   *Options
	queue  chan question
	limit  *rate.Limiter
	client client

	outcome atomic.Int32 // of the last question

	until  time.Time // it is not asked before
	pause  time.Duration
	warned string
}

func newSource(s Socket, o *Options) *source {
	return &source{
		socket: s, opts: o, queue: make(chan question, maxQueue), limit: rate.NewLimiter(questionsRate, questionsBurst),
	}
}

// mayKnow reports whether the runtime may be the one of the hint. Docker's containers are
// also Kubernetes' where cri-dockerd is used, and known to Docker.
func (s *source) mayKnow(hint string) bool {
	switch hint {
	case process.Containerd, process.CRIO:
		return s.socket.Protocol == CRI
	case process.Docker, process.Podman:
		return s.socket.Protocol == Docker
	}
	return hint == ""
}

// ask reports whether there is room for a question.
func (s *source) ask(q question) bool {
	if !s.limit.Allow() {
		return false
	}
	select {
	case s.queue <- q:
		return true
	default:
		return false
	}
}

func (s *source) serve(ctx context.Context) {
	defer func() {
		if s.client != nil {
			s.client.close()
		}
	}()
	for {
		select {
		case q := <-s.queue:
			q.answer(s.find(ctx, q.id, q.hint), s.opts.Retry)
		case <-ctx.Done():
			return
		}
	}
}

// find asks the runtime. One that fails is left alone for a while, each time longer.
func (s *source) find(ctx context.Context, id, hint string) *Container {
	now := time.Now()
	if now.Before(s.until) {
		return nil
	}
	c, err := s.query(ctx, id)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil && !errors.Is(err, errUnknown) {
		s.pause = min(max(2*s.pause, time.Second), longestBreak)
		s.until = now.Add(s.pause)
		if s.client != nil { // gRPC would wait for up to two minutes before it connects again
			s.client.close()
			s.client = nil
		}
		s.outcome.Store(fails)
		s.warn(err)
		return nil
	}
	s.outcome.Store(answers)
	s.pause = 0
	if err != nil {
		return nil
	}
	if s.warned != "" {
		s.warned = ""
		s.opts.Log.Info("the container runtime answers again", zap.String("socket", s.socket.Path))
	}
	return s.bounded(c, id, hint)
}

func (s *source) query(ctx context.Context, id string) (c *Container, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	defer func() { // in the decoders of what others wrote
		if v := recover(); v != nil {
			c, err = nil, fmt.Errorf("panic: %v", v)
		}
	}()
	if s.client == nil {
		var st unix.Stat_t
		if err := unix.Stat(s.socket.Path, &st); err != nil {
			return nil, err
		}
		if s.client, err = newClient(s.socket); err != nil {
			return nil, err
		}
	}
	return s.client.container(ctx, id)
}

func newClient(s Socket) (client, error) {
	if s.Protocol == CRI {
		return newCRI(s.Path)
	}
	return newDocker(s.Path), nil
}

// warn logs a failure once. A socket that is not there is no failure: most machines have
// at most one runtime.
func (s *source) warn(err error) {
	if errors.Is(err, fs.ErrNotExist) || s.warned != "" {
		return
	}
	s.warned = text.Clean(err.Error())
	s.opts.Log.Warn("the container runtime does not answer: its containers have no names",
		zap.String("socket", s.socket.Path), zap.String("error", s.warned))
}

// bounded checks an answer and limits its size.
func (s *source) bounded(c *Container, id, hint string) *Container {
	out := &Container{
		ID: id, Runtime: hint, Name: short(c.Name), Image: short(c.Image), Pod: short(c.Pod), Namespace: short(c.Namespace), PodUID: short(c.PodUID),
	}
	if out.Runtime == "" {
		out.Runtime = short(c.Runtime)
	}
	for key, value := range c.Labels {
		if slices.Contains(s.opts.Labels, key) && value != "" {
			if out.Labels == nil {
				out.Labels = map[string]string{}
			}
			out.Labels[key] = short(value)
		}
	}
	return out
}

// short makes text printable on one line, of at most maxName bytes.
func short(s string) string {
	s = text.Clean(s[:min(len(s), maxName)])
	return strings.ToValidUTF8(s[:min(len(s), maxName)], "")
}
