package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/tailcam/tailcam/internal/redact"
)

// Kinds of targets, which are schemes of URLs.
const (
	kindS3    = "s3"    // s3://BUCKET/PREFIX
	kindHTTP  = "http"  // http://HOST/PATH
	kindHTTPS = "https" // https://HOST/PATH
	kindSFTP  = "sftp"  // sftp://USER@HOST:PORT/PATH
	kindFile  = "file"  // file:///PATH
)

// Parse parses the URL of a target. Errors continue a sentence that begins with it, and
// have nothing of it that may be a secret.
func Parse(target string) (*url.URL, error) {
	u, err := url.Parse(target)
	if err != nil || !slices.Contains([]string{kindS3, kindHTTP, kindHTTPS, kindSFTP, kindFile}, u.Scheme) {
		return nil, errors.New("does not begin with s3://, https://, http://, sftp:// or file://")
	}
	_, password := u.User.Password()
	switch {
	case password || u.User != nil && u.Scheme != kindSFTP:
		return nil, errors.New("has a user or a password: put them into the file upload.credentials")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, errors.New("has a query or a fragment")
	case u.Scheme == kindFile && (u.Host != "" || u.Path == "" || !filepath.IsAbs(u.Path)):
		return nil, errors.New("is not file:// and an absolute path")
	case u.Scheme != kindFile && u.Hostname() == "":
		return nil, errors.New("has no host")
	case u.Scheme == kindS3 && s3utils.CheckValidBucketName(u.Host) != nil:
		return nil, errors.New("has an invalid bucket name")
	case u.Scheme == kindSFTP && u.User.Username() == "":
		return nil, errors.New("has no user: sftp://USER@HOST/PATH")
	}
	return u, nil
}

// Link returns the URL that a snapshot of a host has at a target, for those that people and
// programs elsewhere can open: http, https and s3; empty: it has none.
func Link(target, host, id string, redacted []redact.Kind) string {
	u, err := Parse(target)
	if err != nil || u.Scheme == kindFile || u.Scheme == kindSFTP {
		return ""
	}
	return u.JoinPath(HostDir(host), newRedaction(redacted, nil).fileName(id)).String()
}

// object is one pack on its way.
type object struct {
	file   *os.File
	bytes  int64
	sha256 string // in hex
	// body reads the file from an offset, no faster than allowed, and tells the progress.
	body func(ctx context.Context, from int64) io.Reader
}

// target is where packs go. Each file has one name for ever, below the target's path. A
// target takes a file whole or not at all, as far as its protocol allows.
type target interface {
	// put sends an object unless the target has it, and reports whether it had.
	put(ctx context.Context, name string, o *object) (existed bool, err error)
	// close ends connections. The next put makes new ones.
	close()
}

// errConflict means that the target's file of the name is of another size.
var errConflict = errors.New("the target has another file of this name")

func newTarget(j *job) (target, error) {
	u, err := Parse(j.Target)
	if err != nil {
		return nil, fmt.Errorf("upload.target %w", err)
	}
	switch u.Scheme {
	case kindS3:
		return newS3Target(u, j)
	case kindSFTP:
		return &sftpTarget{url: u, job: j}, nil
	case kindFile:
		return dirTarget{u.Path}, nil
	default:
		return newHTTPTarget(u, j)
	}
}

// maxCredentials is more than any key needs.
const maxCredentials = 64 << 10

// readCredentials reads a small file. Errors have its name, and nothing of its contents.
func readCredentials(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("upload.credentials: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCredentials+1))
	if err == nil && len(data) > maxCredentials {
		err = fmt.Errorf("%s is too large", file)
	}
	if err != nil {
		return nil, fmt.Errorf("upload.credentials: %w", err)
	}
	return data, nil
}

// below returns the path of a name below another one, without a slash at its beginning
// if relative.
func below(dir, name string, relative bool) string {
	p := path.Join("/", dir, name)
	if relative {
		return strings.TrimPrefix(p, "/")
	}
	return p
}
