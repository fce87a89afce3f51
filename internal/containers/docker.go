package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/process"
)

// docker is Docker, or Podman's service that speaks Docker's API.
type docker struct{ http *http.Client }

func newDocker(path string) *docker {
	return &docker{http: &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			},
			MaxConnsPerHost: 1, MaxIdleConns: 1, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (d *docker) close() { d.http.CloseIdleConnections() }

func (d *docker) container(ctx context.Context, id string) (*Container, error) {
	filter, err := json.Marshal(map[string][]string{"id": {id}})
	if err != nil {
		return nil, err
	}
	var list []struct {
		ID     string `json:"Id"`
		Names  []string
		Image  string
		Labels map[string]string
	}
	query := url.Values{"all": {"true"}, "filters": {string(filter)}}
	server, err := d.get(ctx, "/containers/json?"+query.Encode(), &list)
	if err != nil {
		return nil, err
	}
	runtime := process.Docker
	if strings.HasPrefix(server, "Libpod/") { // /version says it, too, after Podman has run other programs for a second
		runtime = process.Podman
	}
	for i := range list {
		if list[i].ID != id {
			continue
		}
		got := &Container{Runtime: runtime, Image: list[i].Image, Labels: map[string]string{}}
		for _, name := range list[i].Names { // with links, a container has several; its own has one slash
			if name = strings.TrimPrefix(name, "/"); got.Name == "" || !strings.Contains(name, "/") {
				got.Name = name
			}
		}
		got.fromLabels(list[i].Labels)
		return got, nil
	}
	return nil, errUnknown
}

// get returns the name of the server. It asks without a version of the API in the path:
// then it is the newest.
func (d *docker) get(ctx context.Context, path string, into any) (server string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://runtime"+path, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := d.http.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return "", errUnknown
	default:
		return "", errors.New("it answers " + answer.Status)
	}
	body := io.LimitReader(answer.Body, maxAnswer)
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return "", fmt.Errorf("read its answer: %w", err)
	}
	return answer.Header.Get("Server"), nil
}
