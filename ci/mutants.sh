#!/usr/bin/env bash
# Mutants: product code with one operation weakened or dropped, which a named test must notice.
# usage: ci/mutants.sh [--all | --list | patch...]
#
# Without arguments: the mutants of what changed, where a mutant belongs to the file that it patches, to its own patch file and to the
# file of the test that must notice it. "Changed" is against MUTANTS_BASE if that is set, else against the merge base with origin/main
# or main if that is not HEAD itself, else against the commit before HEAD; what is not committed counts. A crate with none among these
# still tries one, another one with each commit. At most MUTANTS_MOST of those that changed are tried, 56 unless set. --list tells which, and runs nothing.
#
# A patch file is a header and a diff against the root:
#   kind: loom | std      package: …      target: --test turn | --lib      test: its exact path      why: what the operation protects
# A mutant counts if it applies, compiles, and the named test then fails by a panic (a report of loom, an assertion), while the same test
# passes on the clean copy in this run. A time-out, a crash without a panic, a compile error or one of loom's caps is no catch.
source "$(dirname "${BASH_SOURCE[0]}")/lib"
most_seconds=${MUTANTS_SECONDS:-150}
most_changed=${MUTANTS_MOST:-56}
# One line changes from build to build.
export CARGO_INCREMENTAL=1

tree=$FOLIO_TARGET-loom/mutants-tree
log=$FOLIO_TARGET-loom/mutants.log

declare -A kind=() package=() target=() test=() why=() patched=()
read_patch() { # patch file
    local line key value
    while IFS= read -r line; do
        [[ $line != '--- '* ]] || break
        key=${line%%:*}
        value=${line#"$key:"}
        value=${value#"${value%%[![:space:]]*}"}
        value=${value%"${value##*[![:space:]]}"}
        case $key in
            kind) kind[$1]=$value ;;
            package) package[$1]=$value ;;
            target) target[$1]=$value ;;
            test) test[$1]=$value ;;
            why) why[$1]=$value ;;
        esac
    done <"$1"
    [[ ${kind[$1]:-} == loom || ${kind[$1]:-} == std ]] || fail "$1: kind is loom or std"
    [[ ${package[$1]:-} ]] || fail "$1: its header has no package"
    [[ ${target[$1]:-} =~ ^(--lib|--test\ [A-Za-z0-9_-]+)$ ]] || fail "$1: target is --lib or --test and a name"
    [[ ${test[$1]:-} ]] || fail "$1: its header has no test"
    [[ ${why[$1]:-} ]] || fail "$1: its header has no why"
    local files=0
    while IFS= read -r line; do
        [[ $line == '+++ '* ]] || continue
        value=${line#'+++ '}
        value=${value%%$'\t'*}
        patched[$1]=${value#b/}
        files=$((files + 1))
    done <"$1"
    [[ $files -eq 1 ]] || fail "$1: changes $files files, not one"
    [[ ${patched[$1]} == */src/* && ${patched[$1]} != */tests* && ${patched[$1]} != */models* ]] ||
        fail "$1: ${patched[$1]} is not product code"
}

# The file of the test that must notice a mutant, where the header tells.
test_file() { # patch file
    local name=${target[$1]#--test }
    if [[ ${target[$1]} == --lib ]]; then
        printf '%s\n' "${patched[$1]}"
    elif [[ ${package[$1]} == folio-loom-tests ]]; then
        printf '%s\n' "loom-tests/tests/$name.rs"
    else
        printf '%s\n' "$(crate_folder "${package[$1]}")/tests/$name.rs"
    fi
}

patches=(ci/mutants/*/*.patch)
[[ ${#patches[@]} -gt 0 ]] || fail "there are no mutants"
for patch in "${patches[@]}"; do read_patch "$patch"; done

base='' base_name=''
find_base() {
    local name
    if [[ ${MUTANTS_BASE:-} ]]; then
        base=$(git rev-parse --verify "$MUTANTS_BASE^{commit}") base_name=MUTANTS_BASE
        return
    fi
    for name in origin/main main; do
        base=$(git merge-base HEAD "$name" 2>/dev/null) || continue
        base_name="the merge base with $name"
        [[ $base == "$(git rev-parse HEAD)" ]] || return 0
    done
    base=$(git rev-parse --verify --quiet HEAD~1) && base_name="the commit before HEAD" && return
    base='' base_name=''
}

select_changed() {
    local patch file crate folder some count at
    local -A changed=()
    find_base
    if [[ $base ]]; then
        while IFS= read -r -d '' file; do changed[$file]=1; done < <(
            git diff -z --name-only "$base"
            git ls-files -z --others --exclude-standard
        )
        say "mutants of the files that differ from $base_name (${base:0:12}), and at least one a crate"
    else
        say "no earlier commit here to compare with: one mutant a crate; ci/mutants.sh --all tries all"
    fi
    for patch in "${patches[@]}"; do
        for file in "$patch" "${patched[$patch]}" "$(test_file "$patch")"; do
            if [[ ${changed[$file]:-} ]]; then
                selected+=("$patch")
                break
            fi
        done
    done
    # A large change would take hours: each commit tries others of its mutants, spread over all of them.
    count=$(git rev-list --count HEAD)
    if [[ ${#selected[@]} -gt $most_changed ]]; then
        say "$most_changed of the ${#selected[@]} mutants of what changed; ci/mutants.sh --all tries all"
        some=()
        for ((at = 0; at < most_changed; at++)); do
            some+=("${selected[$(((at * ${#selected[@]} / most_changed + count) % ${#selected[@]}))]}")
        done
        selected=("${some[@]}")
    fi
    for folder in ci/mutants/*/; do
        some=("$folder"*.patch)
        [[ ${#some[@]} -gt 0 ]] || continue
        crate=
        for patch in ${selected[@]+"${selected[@]}"}; do [[ $patch != "$folder"* ]] || crate=1; done
        if [[ ! $crate ]]; then
            selected+=("${some[count % ${#some[@]}]}")
        fi
    done
}

selected=() list=''
case ${1:-} in
    --all) selected=("${patches[@]}") ;;
    --list)
        list=1
        select_changed
        ;;
    '') select_changed ;;
    *)
        for patch in "$@"; do
            patch=${patch#"$root/"}
            [[ ${kind[$patch]:-} ]] || fail "no mutant $patch"
            selected+=("$patch")
        done
        ;;
esac
if [[ $list ]]; then
    printf '%s\n' "${selected[@]}"
    exit
fi

# One clean run a group decides whether its mutants mean anything.
group_of() { printf '%s|%s|%s\n' "${kind[$1]}" "${package[$1]}" "${target[$1]}"; }

# Runs cargo test in the copy as a group needs it, stopped after so many seconds.
in_group() { # group, seconds, further arguments
    local kind package target seconds=$2 settings=()
    IFS='|' read -r kind package target <<<"$1"
    shift 2
    if [[ $kind == loom ]]; then
        target_folder loom
        settings=(--profile loom --no-default-features --features "$(modelled_features "$package")")
    else
        target_folder dev
        settings=(--all-features)
    fi
    (
        cd "$tree"
        [[ $kind == std ]] || export RUSTFLAGS="--cfg loom"
        # shellcheck disable=SC2086 # two words on purpose
        timeout --kill-after=10 "$seconds" cargo test -p "$package" "${settings[@]}" $target "$@" </dev/null
    )
}
seconds_since() { printf '%d' $(($(date +%s) - $1)); }

caught=0 table=() escaped=()
verdict() { # patch, verdict, seconds
    local name=${1#ci/mutants/}
    table+=("$(printf '%-44s %5d s  %s' "${name%.patch}" "$3" "$2")")
    printf '%s: %s\n' "${name%.patch}" "$2"
    if [[ $2 == caught* ]]; then
        caught=$((caught + 1))
    else
        escaped+=("$1")
        if [[ $2 != "does not apply"* ]]; then
            # The end of what it said, for whoever looks for the reason.
            tail -n 25 "$log"
        fi
    fi
}

try_mutant() { # group, patch: the copy is clean before and after
    local began status=0 line report=''
    began=$(date +%s)
    if ! git -C "$tree" apply "$root/$2" >"$log" 2>&1; then
        cat "$log"
        verdict "$2" "does not apply" 0
        return
    fi
    if ! in_group "$1" 1200 --no-run >"$log" 2>&1; then
        verdict "$2" "does not compile" "$(seconds_since "$began")"
    else
        # The limit is for the test alone: it is built.
        in_group "$1" "$most_seconds" -- --exact "${test[$2]}" --test-threads=1 --nocapture >"$log" 2>&1 || status=$?
        while IFS= read -r line; do
            case $line in
                *'running 1 test'*) [[ $report ]] || report=ran ;;
                *'panicked at'*) [[ $report != ran ]] || report=panicked ;;
                *'exceeded maximum number of branches'* | *'executions see nothing'*) report=capped ;;
                *'signal: 11'*) report=crashed ;;
            esac
        done <"$log"
        case $status/$report in
            124/*) report="timed out after $most_seconds s" ;;
            */) report="did not run its test" ;;
            0/*) report="NOT CAUGHT by ${test[$2]}" ;;
            */panicked) report=caught ;;
            */capped) report="ran into a cap of loom, which proves nothing" ;;
            */*) report="died without a report" ;;
        esac
        verdict "$2" "$report" "$(seconds_since "$began")"
    fi
    git -C "$tree" apply -R "$root/$2"
}

began=$(date +%s)
groups=()
for patch in "${selected[@]}"; do
    group=$(group_of "$patch")
    # shellcheck disable=SC2076
    [[ " ${groups[*]-} " =~ " $group " ]] || groups+=("$group")
done

copy_project "$tree" mutants
for group in "${groups[@]}"; do
    mine=() names=()
    for patch in "${selected[@]}"; do
        [[ $(group_of "$patch") == "$group" ]] || continue
        mine+=("$patch")
        # shellcheck disable=SC2076
        [[ " ${names[*]-} " =~ " ${test[$patch]} " ]] || names+=("${test[$patch]}")
    done
    printf '\n%s: clean run of %s\n' "${group//|/ }" "${names[*]}"
    clean=
    if in_group "$group" 1800 -- --exact "${names[@]}" --test-threads=1 --nocapture >"$log" 2>&1; then
        read -r passed _ < <(count_tests "$log")
        [[ $passed -ne ${#names[@]} ]] || clean=1
    fi
    for patch in "${mine[@]}"; do
        if [[ $clean ]]; then
            try_mutant "$group" "$patch"
        else
            verdict "$patch" "its clean run does not pass" 0
        fi
    done
done
rm -rf "$tree"

printf '\n'
printf '%s\n' "${table[@]}"
say "$caught of ${#selected[@]} caught, ${#patches[@]} there are, $(seconds_since "$began") s"
[[ ${#escaped[@]} -eq 0 ]] || fail "${#escaped[@]} not caught"
