package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// again is what is sent again of a part that was interrupted: a server that lost its
// power may have lost, too, what it had not written to its disk.
const again = 1 << 20

// sftpTarget sends to a server with SFTP, on one connection.
type sftpTarget struct {
	url    *url.URL
	job    *job
	client *sftp.Client // nil: not connected
	conn   *ssh.Client
}

func (t *sftpTarget) close() {
	if t.client != nil {
		_ = t.conn.Close() // first: it ends what waits
		_ = t.client.Close()
		t.client, t.conn = nil, nil
	}
}

func (t *sftpTarget) put(ctx context.Context, name string, o *object) (bool, error) {
	if t.client == nil {
		if err := t.connect(ctx); err != nil {
			return false, err
		}
	}
	conn := t.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	return t.send(ctx, below(t.url.Path, name, false), o)
}

func (t *sftpTarget) send(ctx context.Context, name string, o *object) (bool, error) {
	switch st, err := t.client.Stat(name); {
	case err == nil && st.Size() != o.bytes:
		return true, errConflict
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("stat %s: %w", name, err)
	}
	if err := t.client.MkdirAll(path.Dir(name)); err != nil {
		return false, fmt.Errorf("create %s: %w", path.Dir(name), err)
	}
	// Of this very file: one that was packed anew, of a snapshot that has changed or redacted
	// again, must not go on where another was.
	part := name + "." + o.sha256[:min(len(o.sha256), 16)] + partExt
	if err := t.upload(ctx, part, o); err != nil {
		return false, fmt.Errorf("write %s: %w", part, err)
	}
	if err := t.client.Rename(part, name); err != nil { // replaces nothing
		return false, fmt.Errorf("rename %s: %w", part, err)
	}
	return false, nil
}

// upload writes what the server does not have yet of a file.
func (t *sftpTarget) upload(ctx context.Context, part string, o *object) error {
	f, err := t.client.OpenFile(part, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // what matters was synced or is checked below
	st, err := f.Stat()
	if err != nil {
		return err
	}
	from := max(0, st.Size()-again)
	if st.Size() > o.bytes {
		from = 0
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	if _, err := f.ReadFromWithConcurrency(o.body(ctx, from), 1); err != nil { // in order: else a part may have holes
		return err
	}
	if _, ok := t.client.HasExtension("fsync@openssh.com"); ok {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if st, err = f.Stat(); err == nil && st.Size() != o.bytes {
		err = fmt.Errorf("the server has %d of %d bytes", st.Size(), o.bytes)
	}
	return err
}

// connect checks the server's key and logs in with ours.
func (t *sftpTarget) connect(ctx context.Context) error {
	if t.job.Credentials == "" {
		return errors.New("set upload.credentials to the file of a private key")
	}
	data, err := readCredentials(t.job.Credentials)
	if err != nil {
		return err
	}
	key, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return fmt.Errorf("upload.credentials: %s is not a private key without a passphrase: %w", t.job.Credentials, err)
	}
	check, err := knownhosts.New(t.job.KnownHosts)
	if err != nil {
		return fmt.Errorf("upload.known_hosts: %w", err)
	}
	port := t.url.Port()
	if port == "" {
		port = "22"
	}
	address := net.JoinHostPort(t.url.Hostname(), port)
	dialer := net.Dialer{Timeout: t.job.Stall}
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	_ = raw.SetDeadline(time.Now().Add(t.job.Stall)) // of the handshake
	conn, channels, requests, err := ssh.NewClientConn(raw, address, &ssh.ClientConfig{
		User: t.url.User.Username(), Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: check, HostKeyAlgorithms: knownAlgorithms(check, address, raw.RemoteAddr()),
	})
	if err != nil {
		_ = raw.Close()
		return hostKeyError(err, t.job.KnownHosts, address)
	}
	_ = raw.SetDeadline(time.Time{})
	t.conn = ssh.NewClient(conn, channels, requests)
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	if t.client, err = sftp.NewClient(t.conn); err != nil {
		_ = t.conn.Close()
		t.conn, t.client = nil, nil
		return fmt.Errorf("start SFTP: %w", err)
	}
	return nil
}

// hostKeyError says what to do about a server that is not known.
func hostKeyError(err error, file, address string) error {
	var key *knownhosts.KeyError
	switch {
	case errors.As(err, &key) && len(key.Want) == 0:
		return fmt.Errorf("the key of %s is not in %s: check it, and add it (ssh-keyscan prints it)", address, file)
	case errors.As(err, &key):
		return fmt.Errorf("the key of %s is not the one in %s: somebody may be in between", address, file)
	}
	return err
}

// knownAlgorithms lists those of the server's keys that we know, so that it shows one of
// these. Nil: none is known, and the check will say so.
func knownAlgorithms(check ssh.HostKeyCallback, address string, remote net.Addr) (names []string) {
	var known *knownhosts.KeyError
	if !errors.As(check(address, remote, noKey{}), &known) {
		return nil
	}
	for _, k := range known.Want {
		if t := k.Key.Type(); t == ssh.KeyAlgoRSA {
			names = append(names, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			names = append(names, t)
		}
	}
	return names
}

// noKey is a key that no server has.
type noKey struct{}

// Type implements ssh.PublicKey.
func (noKey) Type() string { return "none" }

// Marshal implements ssh.PublicKey.
func (noKey) Marshal() []byte { return []byte("none") }

// Verify implements ssh.PublicKey.
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("not a key") }
