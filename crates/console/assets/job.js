// The job's page: the live picture, the fate of the chosen event, and the dialog of a new version.
'use strict';
document.addEventListener('DOMContentLoaded', () => {
  const place = $('#picture');
  if (!place) return;
  const { job, late, inputs } = place.dataset,
    names = JSON.parse(inputs),
    bound = late ? +late : null;
  const api = `/api/jobs/${encodeURIComponent(job)}`,
    beside = $('#fate-body');
  // Pointing asks a little later than clicking, so that the events on the way are not asked for.
  const REST_MS = 250;
  let asked = 0,
    resting = 0;
  async function select(event, pinned) {
    const { input, partition, offset } = event,
      name = names[input]?.name ?? String(input),
      hub = names[input]?.hubs?.[partition] ?? name;
    const command = `highwater why --job ${job} ${name}/${partition}/${offset}`;
    const options = {
      where: `${hub} / partition ${partition} / offset ${offset.toLocaleString('en')}`,
      late: bound,
      command,
    };
    showFate(beside, event, options);
    $('#fate-copy').dataset.copy = command;
    $('#fate-copy').hidden = false;
    const turn = ++asked;
    clearTimeout(resting);
    if (!pinned) await new Promise(resolve => (resting = setTimeout(resolve, REST_MS)));
    if (turn !== asked) return;
    try {
      const fate = await call('GET', `${api}/events/${input}/${partition}/${offset}`);
      if (turn === asked) showFate(beside, fate, options);
    } catch (error) {
      if (turn === asked && pinned && error.code !== 'trimmed') toast(errorText(error), error.hint, true);
    }
  }
  const picture = new Picture(place, { late: bound, live: true, select });
  window.picture = picture;

  let samples = null,
    retry = 0;
  const skipped = $('#skipped');
  const runs = () => /^(running|replaying|starting)/.test($('#heading .pill')?.textContent ?? '');
  function open() {
    clearTimeout(retry);
    if (samples || isPaused() || document.hidden || !runs()) return;
    samples = new EventSource(`${api}/samples`);
    samples.addEventListener('samples', message => {
      const { events, watermarks, skipped: left } = JSON.parse(message.data);
      picture.add(events, watermarks);
      skipped.textContent = left ? `a sample: ${left.toLocaleString('en')} events not drawn just now` : '';
    });
    samples.onerror = () => {
      if (samples?.readyState === EventSource.CLOSED) {
        close();
        retry = setTimeout(open, 3000);
      }
    };
  }
  const close = () => {
    samples?.close();
    samples = null;
    clearTimeout(retry);
  };
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  addEventListener('pagehide', close);
  document.addEventListener('highwater:panel', ({ detail }) => {
    if (detail === 'heading') runs() ? open() : close();
  });
  document.addEventListener('highwater:pause', ({ detail }) => {
    picture.frozen = detail;
    $('#pause').textContent = detail ? 'Continue' : 'Pause';
    detail ? close() : open();
  });
  for (const button of $$('[data-span]'))
    button.addEventListener('click', () => {
      picture.span = +button.dataset.span;
      picture.from = null;
      picture.soon();
      for (const other of $$('[data-span]')) other.setAttribute('aria-pressed', other === button);
    });
  open();
});

// ---- A new version: the files of the job in an editor, the difference of queries and of plans before it is deployed.
document.addEventListener('DOMContentLoaded', () => {
  const dialog = $('#new-version');
  if (!dialog) return;
  const { job } = dialog.dataset,
    api = `/api/jobs/${encodeURIComponent(job)}`,
    query = $('textarea', dialog);
  const state = { files: {}, path: '', before: '' };
  const error = $('.field-error', dialog);
  const showError = problem => {
    error.textContent = `${errorText(problem)}${problem.hint ? `\n${problem.hint}` : ''}`;
  };
  function edit(path) {
    state.path = path;
    query.value = state.files[path] ?? '';
    for (const tab of $$('[data-file]', dialog)) tab.setAttribute('aria-pressed', tab.dataset.file === path);
    compare();
  }
  function compare() {
    state.files[state.path] = query.value;
    showDifference($('#difference'), state.before[state.path] ?? '', query.value);
  }
  query.addEventListener('input', compare);
  document.addEventListener('click', async event => {
    if (event.target.id !== 'open-new-version') return;
    error.textContent = '';
    dialog.showModal();
    try {
      const { files } = await call('GET', `${api}/files`);
      Object.assign(state, { files: { ...files }, before: files });
      const paths = Object.keys(files).sort((a, b) => b.endsWith('.saql') - a.endsWith('.saql') || a.localeCompare(b));
      $('#files', dialog).replaceChildren(
        ...paths.map(path => element('button', { type: 'button', 'data-file': path }, path)),
      );
      edit(paths[0]);
    } catch (problem) {
      showError(problem);
    }
  });
  $('#files', dialog).addEventListener('click', ({ target }) => {
    if (target.dataset.file) edit(target.dataset.file);
  });
  $('#plans', dialog).addEventListener('click', async () => {
    const inputs = Object.fromEntries(JSON.parse(dialog.dataset.inputs).map(name => [name, { text: '' }]));
    const path = Object.keys(state.files).find(path => path.endsWith('.saql'));
    try {
      const [old, now] = await Promise.all(
        [state.before[path], state.files[path]].map(query => call('POST', '/api/playground', { query, inputs })),
      );
      const problem = now.diagnostics.find(({ severity }) => severity === 'error');
      error.textContent = problem
        ? `${problem.code} at line ${problem.line}, column ${problem.column}: ${problem.message}${problem.hint ? `\n${problem.hint}` : ''}`
        : '';
      if (!problem) showDifference($('#difference'), old.explain ?? '', now.explain ?? '');
    } catch (problem) {
      showError(problem);
    }
  });
  $('#deploy', dialog).addEventListener('click', async () => {
    const start = $('input[name=start]', dialog).value.trim();
    error.textContent = '';
    try {
      await call('PUT', api, { files: state.files, ...(start ? { start } : {}) });
      dialog.close();
      toast(`The new version of ${job} starts.`);
    } catch (problem) {
      showError(problem);
    }
  });
});

// Lines of both texts, by their longest common subsequence.
function showDifference(place, before, after) {
  const a = before.split('\n').slice(0, 500),
    b = after.split('\n').slice(0, 500);
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const lines = [];
  let i = 0,
    j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push(['', `  ${a[i]}`]);
      i++;
      j++;
    } else if (j < b.length && (i === a.length || common[i][j + 1] >= common[i + 1][j]))
      lines.push(['add', `+ ${b[j++]}`]);
    else lines.push(['del', `- ${a[i++]}`]);
  }
  const changed = lines.some(([kind]) => kind);
  place.replaceChildren(
    ...(changed
      ? lines.map(([kind, line]) => element('span', kind ? { class: kind } : {}, kind ? line : `${line}\n`))
      : ['Nothing differs.']),
  );
}
