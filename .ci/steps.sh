# Sourced by the scripts of this folder: runs named steps and prints at the end, also of a failed run, what each took.

step_names=()
step_starts=()

step() {
  step_names+=("$*")
  step_starts+=("$SECONDS")
  printf '\n== %s\n' "$*"
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
