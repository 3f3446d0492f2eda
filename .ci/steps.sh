# Sourced by the scripts of this folder: runs named steps and prints at the end, also of a failed run, what each took.

step_names=()
step_starts=()

step() {
  step_names+=("$*")
  step_starts+=("$SECONDS")
  printf '\n== %s\n' "$*"
}

beside_names=()
beside_pids=()
beside_logs=$(mktemp -d)

# beside NAME COMMAND..: starts a part of the step that waits more than it computes. Parts share no ports and no files.
beside() {
  local name=$1; shift
  (SECONDS=0; status=0; "$@" || status=$?; echo "($name: $SECONDS s)"; exit "$status") >"$beside_logs/$name" 2>&1 &
  beside_names+=("$name"); beside_pids+=($!)
}

# Waits for the parts, prints what each printed, and fails if one of them did.
wait_beside() {
  local index failed=
  for index in "${!beside_pids[@]}"; do
    wait "${beside_pids[index]}" || failed="$failed ${beside_names[index]}"
    printf -- '-- %s\n' "${beside_names[index]}"; cat "$beside_logs/${beside_names[index]}"
  done
  beside_names=(); beside_pids=()
  [ -z "$failed" ] || { echo "failed:$failed" >&2; return 1; }
}

print_times() {
  local index end
  printf '\n== time of each step, in seconds\n'
  for index in "${!step_names[@]}"; do
    end=${step_starts[index + 1]:-$SECONDS}
    printf '%6d  %s\n' $((end - step_starts[index])) "${step_names[index]}"
  done
  printf '%6d  in all\n' "$SECONDS"
}
