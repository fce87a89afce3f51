package fleet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

const root = "../.."

// hang is how long a test waits for what has to happen.
const hang = 3 * time.Minute

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !holds(); {
		assert.Assert(t, time.Now().Before(end), "waited %s in vain until %s", hang, what)
		time.Sleep(50 * time.Millisecond)
	}
}

// server is ClickHouse, of Debian, with a directory and ports of its own.
type server struct {
	t       *testing.T
	dir     string
	port    string
	process *exec.Cmd
}

// The smallest configuration that 18.16 starts with.
const serverConfig = `<yandex>
<logger><level>warning</level><log>%[1]s/server.log</log><errorlog>%[1]s/error.log</errorlog></logger>
<http_port>%[2]s</http_port><listen_host>127.0.0.1</listen_host>
<path>%[1]s/data/</path><tmp_path>%[1]s/tmp/</tmp_path><user_files_path>%[1]s/files/</user_files_path>
<format_schema_path>%[1]s/formats/</format_schema_path>
<users_config>users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
<mark_cache_size>268435456</mark_cache_size><max_concurrent_queries>100</max_concurrent_queries><timezone>UTC</timezone>
</yandex>
`

// readerPassword is that of a user who may only read, and change no setting.
const readerPassword = "correct horse & battery"

const usersConfig = `<yandex>
<profiles><default></default>
<reader><readonly>1</readonly><max_execution_time>30</max_execution_time><max_memory_usage>4000000000</max_memory_usage></reader></profiles>
<users>
<default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default>
<reader><password>correct horse &amp; battery</password><networks><ip>127.0.0.1</ip></networks><profile>reader</profile><quota>default</quota></reader>
</users>
<quotas><default></default></quotas>
</yandex>
`

func newServer(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath("clickhouse-server"); err != nil {
		t.Skip("needs clickhouse-server (apt install clickhouse-server)")
	}
	s := &server{t: t, dir: t.TempDir(), port: freePort(t)}
	for name, text := range map[string]string{"config.xml": fmt.Sprintf(serverConfig, s.dir, s.port), "users.xml": usersConfig} {
		assert.NilError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
	s.start()
	t.Cleanup(s.kill)
	s.load("clickhouse/outliers.sql")
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.process = exec.Command("clickhouse-server", "--config-file="+filepath.Join(s.dir, "config.xml"))
	s.process.Dir = s.dir
	out, err := os.OpenFile(filepath.Join(s.dir, "out.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	assert.NilError(s.t, err)
	defer out.Close()
	s.process.Stdout, s.process.Stderr = out, out
	assert.NilError(s.t, s.process.Start())
	for end := time.Now().Add(hang); ; time.Sleep(50 * time.Millisecond) {
		if resp, err := http.Get(s.url("http") + "/ping"); err == nil {
			resp.Body.Close()
			return
		}
		log, _ := os.ReadFile(out.Name())
		assert.Assert(s.t, time.Now().Before(end) && s.process.ProcessState == nil, "ClickHouse does not answer\n%s", log)
	}
}

// kill ends it as a power failure would.
func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func (s *server) url(scheme string) string { return scheme + "://127.0.0.1:" + s.port }

// load runs the statements of a shipped file.
func (s *server) load(name string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "configs/fleet", name))
	assert.NilError(s.t, err)
	for _, statement := range statements(string(text)) {
		s.do(statement)
	}
}

// statements splits a file as clickhouse-client --multiquery does.
func statements(text string) (list []string) {
	var code strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			code.WriteString(line)
		}
	}
	for s := range strings.SplitSeq(code.String(), ";\n") {
		if s = strings.TrimSuffix(strings.TrimSpace(s), ";"); s != "" {
			list = append(list, s)
		}
	}
	return list
}

// do runs one statement and returns what it prints.
func (s *server) do(statement string) string {
	s.t.Helper()
	out, err := s.try(statement)
	assert.NilError(s.t, err)
	return out
}

func (s *server) try(statement string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	return post(ctx, s.url("http")+"/", statement)
}

func post(ctx context.Context, url, statement string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(statement))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s\n%s", resp.Status, body, statement)
	}
	return strings.TrimSpace(string(body)), err
}

// freePort is a port of this machine on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	assert.NilError(t, err)
	return port
}
