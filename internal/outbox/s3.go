package outbox

import (
	"context"
	"crypto/md5" //nolint:gosec // what S3 calls a part's ETag, compared to save sending it again
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// sumKey is the metadata of an object that has the checksum of the pack.
const sumKey = "Tailcam-Sha256"

// S3 wants at least 5 MiB for each part but the last, and has at most 10,000.
const partSize = 8 << 20

// s3Target sends to a store with the API of S3.
type s3Target struct {
	core   *minio.Core
	bucket string
	prefix string
	part   int64
}

func newS3Target(u *url.URL, j *job) (*s3Target, error) {
	endpoint, err := url.Parse(j.S3Endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, errors.New("upload.s3.endpoint is not a URL")
	}
	transport, err := newTransport(j)
	if err != nil {
		return nil, err
	}
	var from credentials.Provider = &credentials.EnvAWS{}
	if j.Credentials != "" {
		if _, err := readCredentials(j.Credentials); err != nil { // the library would tell nothing
			return nil, err
		}
		from = &credentials.FileAWSCredentials{Filename: j.Credentials}
	}
	core, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds: credentials.New(from), Secure: endpoint.Scheme == kindHTTPS, Transport: transport, Region: j.S3Region,
		MaxRetries: 1, // the queue has its own
	})
	if err != nil {
		return nil, fmt.Errorf("upload.s3.endpoint: %w", err)
	}
	return &s3Target{core: core, bucket: u.Host, prefix: u.Path, part: partSize}, nil
}

func (t *s3Target) close() {}

func (t *s3Target) put(ctx context.Context, name string, o *object) (bool, error) {
	key := below(t.prefix, name, true)
	there, err := t.core.StatObject(ctx, t.bucket, key, minio.StatObjectOptions{})
	switch {
	case err == nil:
		if sum := there.UserMetadata[sumKey]; there.Size != o.bytes || sum != "" && sum != o.sha256 {
			return true, errConflict
		}
		return true, nil
	case minio.ToErrorResponse(err).StatusCode != http.StatusNotFound || minio.ToErrorResponse(err).Code == minio.NoSuchBucket:
		return false, err
	}
	opts := minio.PutObjectOptions{
		ContentType: "application/zstd", UserMetadata: map[string]string{sumKey: o.sha256},
		DisableContentSha256: true, // of its chunks, as the store gets that of the whole
	}
	if o.bytes > t.part {
		return false, t.parts(ctx, key, o, &opts)
	}
	_, err = t.core.PutObject(ctx, t.bucket, key, o.body(ctx, 0), o.bytes, "", o.sha256, opts)
	return false, err
}

// parts sends what the store does not have yet of an upload that was interrupted, or all.
func (t *s3Target) parts(ctx context.Context, key string, o *object, opts *minio.PutObjectOptions) error {
	upload, have, err := t.unfinished(ctx, key)
	if err != nil {
		return err
	}
	if upload == "" {
		if upload, err = t.core.NewMultipartUpload(ctx, t.bucket, key, *opts); err != nil {
			return err
		}
	}
	part := max(t.part, (o.bytes/9000+1<<20)>>20<<20)
	var all []minio.CompletePart
	for n, from := 1, int64(0); from < o.bytes; n, from = n+1, from+part {
		size := min(part, o.bytes-from)
		sum, whole := md5.New(), sha256.New() //nolint:gosec // see the import
		if _, err := io.Copy(io.MultiWriter(sum, whole), io.NewSectionReader(o.file, from, size)); err != nil {
			return err
		}
		tag := hex.EncodeToString(sum.Sum(nil))
		if p, ok := have[n]; !ok || p.Size != size || strings.Trim(p.ETag, `"`) != tag {
			body := io.LimitReader(o.body(ctx, from), size)
			sent, err := t.core.PutObjectPart(ctx, t.bucket, key, upload, n, body, size, minio.PutObjectPartOptions{
				Sha256Hex: hex.EncodeToString(whole.Sum(nil)), DisableContentSha256: true,
			})
			if err != nil {
				return fmt.Errorf("part %d: %w", n, err)
			}
			tag = sent.ETag
		}
		all = append(all, minio.CompletePart{PartNumber: n, ETag: tag})
	}
	_, err = t.core.CompleteMultipartUpload(ctx, t.bucket, key, upload, all, *opts)
	return err
}

// unfinished finds an upload of the key that was interrupted, and its parts.
func (t *s3Target) unfinished(ctx context.Context, key string) (upload string, have map[int]minio.ObjectPart, err error) {
	list, err := t.core.ListMultipartUploads(ctx, t.bucket, key, "", "", "", 10)
	if err != nil {
		return "", nil, nil //nolint:nilerr // not every store, or policy, allows it: send all
	}
	for _, u := range list.Uploads {
		if u.Key == key {
			upload = u.UploadID
		}
	}
	if upload == "" {
		return "", nil, nil
	}
	have = map[int]minio.ObjectPart{}
	for marker, more := 0, true; more; {
		parts, err := t.core.ListObjectParts(ctx, t.bucket, key, upload, marker, 1000)
		if err != nil {
			return "", nil, nil //nolint:nilerr // as above
		}
		for _, p := range parts.ObjectParts {
			have[p.PartNumber] = p
		}
		more = parts.IsTruncated && parts.NextPartNumberMarker > marker
		marker = parts.NextPartNumberMarker
	}
	return upload, have, nil
}
