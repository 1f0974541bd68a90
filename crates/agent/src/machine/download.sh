# Downloads the runner program: bash download.sh URL SHA256 DIRECTORY
directory=$3

if [[ -x $directory/bin/Runner.Listener ]]; then
    echo "the image has the program"
    exit 0
fi
archive=$directory.tar.gz new=$directory.new
rm -rf "$new"
mkdir -p "$new"
bring "$1" "$2" "$archive"
# The archive's owners are of the machine that packed it.
tar -xzf "$archive" --no-same-owner -C "$new"
# As a whole or not at all: a directory with a program is never looked at again.
mv -T "$new" "$directory"
rm "$archive"
