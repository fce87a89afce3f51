#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs tailcam below DESTDIR, as `make install` and the packages do: the program, its unit,
# rules, actions, header, Python module, schemas, manual pages and completions. An operator's /etc/tailcam stays as
# it is.
#
#   scripts/install.sh TAILCAM [NATIVE]
#
# TAILCAM is the program to install. NATIVE is one that runs here, if that one does not, and writes
# its manual pages and completions. In the environment: DESTDIR (default: none), PREFIX (default:
# /usr/local), ZSH_DIR (default: PREFIX/share/zsh/site-functions), PYTHON_DIR (default:
# PREFIX/lib/python3/dist-packages, as Debian has it), MD2MAN (go-md2man), SOURCE_DATE_EPOCH (date of
# the manual pages).
set -euo pipefail
umask 022
tailcam=$(realpath "$1")
native=$(realpath "${2:-$1}")
md2man=${MD2MAN:-go-md2man}
[[ $md2man != */* ]] || md2man=$(realpath "$md2man")
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
usr=$root$prefix
etc=$root/etc/tailcam
zsh=$root${ZSH_DIR:-$prefix/share/zsh/site-functions}
python=$root${PYTHON_DIR:-$prefix/lib/python3/dist-packages}
doc=$prefix/share/doc/tailcam
if [[ $prefix != /* ]]; then
	echo "install: PREFIX=$prefix is not an absolute path" >&2
	exit 1
fi

# placed prints a file with the paths of this installation.
placed() {
	sed -e "s|/usr/bin/tailcam|$prefix/bin/tailcam|g" -e "s|/usr/lib/tailcam|$prefix/lib/tailcam|g" \
		-e "s|configs/rules.d|$prefix/lib/tailcam/rules.d|g" \
		-e "s|configs/rules.more|$doc/examples/rules.more|g" "$1"
}

put() { # DIRECTORY FILE...
	local dir=$1 file
	shift
	mkdir -p "$dir"
	for file; do
		placed "$file" >"$dir/${file##*/}"
		chmod 644 "$dir/${file##*/}"
	done
}

install -D -m 755 "$tailcam" "$usr/bin/tailcam"
install -D -m 755 -t "$usr/lib/tailcam/actions" configs/actions/*.sh
put "$usr/lib/tailcam/rules.d" configs/rules.d/*.yaml
put "$usr/lib/tailcam" configs/shell/tailcam.sh
put "$usr/include" clients/c/tailcam.h
put "$python" clients/python/tailcam.py
put "$usr/lib/systemd/system" configs/systemd/tailcam.service
put "$usr/lib/sysusers.d" configs/sysusers.d/tailcam.conf
put "$usr/lib/tmpfiles.d" configs/tmpfiles.d/tailcam.conf
if [[ ! -e $etc/tailcam.yaml ]]; then
	put "$etc" configs/tailcam.yaml
elif ! cmp -s <(placed configs/tailcam.yaml) "$etc/tailcam.yaml"; then
	echo "install: kept $etc/tailcam.yaml; the new one is configs/tailcam.yaml"
fi
mkdir -p "$etc/conf.d" "$etc/rules.d" # the operator's
for file in README.md docs/*.md; do
	case $file in
	docs/README.md | docs/architecture.md | docs/where.md) ;; # about the source
	*) put "$root$doc" "$file" ;;
	esac
done
put "$usr/share/tailcam/schemas" configs/schemas/*.json
put "$root$doc/examples/rules.more" configs/rules.more/*.yaml
put "$root$doc/examples/systemd" configs/systemd/*.conf
put "$root$doc/examples/prometheus" configs/prometheus/alerts.yaml configs/prometheus/alertmanager.yaml
put "$root$doc/examples/grafana" configs/grafana/tailcam.json
for dir in . conf.d rules.d; do # as they are: paths in them are those of the image
	install -D -m 644 -t "$root$doc/examples/kubernetes/$dir" configs/kubernetes/"$dir"/*.yaml
done
put "$root$doc/examples/fleet" configs/fleet/*.yaml
put "$root$doc/examples/fleet/clickhouse" configs/fleet/clickhouse/*.sql
put "$root$doc/examples/fleet/loki" configs/fleet/loki/*.logql

# Manual pages, and what is left of docs/rules.md without its links.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/man"
"$native" man --config configs/tailcam.yaml "$work/man"
date=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%F)
{
	printf '%% TAILCAM-RULES 5 "%s" "%s" "tailcam manual"\n' "$date" "$("$native" version | sed -e 's/ (.*//' -e 1q)"
	printf '\n# NAME\n\ntailcam-rules - rules of tailcam\n\n# DESCRIPTION\n'
	sed -e 1d -e 's/^##\(#*\) /#\1 /' -e 's/\[\([^]]*\)\]([^)]*)/\1/g' docs/rules.md
} >"$work/rules.md"
"$md2man" -in "$work/rules.md" -out "$work/rules.5"
sed '0,/^\.TH/s/^\.TH.*$/&\n.ad l/' "$work/rules.5" >"$work/man/tailcam-rules.5"
for page in "$work"/man/*; do
	dir=$usr/share/man/man${page##*.}
	mkdir -p "$dir"
	placed "$page" | sed "s|\bdocs/\([a-z]*\.md\)|$doc/\1|g" | gzip -9n >"$dir/${page##*/}.gz"
	chmod 644 "$dir/${page##*/}.gz"
done

"$native" completion bash >"$work/tailcam"
put "$usr/share/bash-completion/completions" "$work/tailcam"
"$native" completion zsh >"$work/_tailcam"
put "$zsh" "$work/_tailcam"
"$native" completion fish >"$work/tailcam.fish"
put "$usr/share/fish/vendor_completions.d" "$work/tailcam.fish"
