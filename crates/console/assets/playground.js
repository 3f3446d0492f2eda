// The playground: state in the page and in the link's fragment, run by the node on every change.
'use strict';
const SCALE = [
  '0s',
  '100ms',
  '500ms',
  '1s',
  '2s',
  '5s',
  '10s',
  '20s',
  '30s',
  '1m',
  '2m',
  '5m',
  '10m',
  '30m',
  '1h',
  '6h',
  '1d',
  '7d',
];
const SLIDERS = ['late_arrival', 'out_of_order', 'early_arrival'],
  CHOICES = ['late_events', 'out_of_order_events', 'early_events'];
const DEFAULTS = {
  late_arrival: '5s',
  out_of_order: '0s',
  early_arrival: '5m',
  late_events: 'adjust',
  out_of_order_events: 'adjust',
  early_events: 'drop',
};
const KEYWORDS = new Set(
  'SELECT INTO FROM WHERE GROUP BY HAVING TIMESTAMP OVER PARTITION WITH AS JOIN LEFT INNER OUTER CROSS APPLY ON UNION ALL AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT TOP CREATE TABLE LIMIT DURATION ORDER ASC DESC MATCH_RECOGNIZE MEASURES PATTERN DEFINE AFTER MATCH SKIP TO NEXT PAST ROW CAST'.split(
    ' ',
  ),
);
const UNITS = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 };
const millis = text => {
  const parts = [...text.matchAll(/([\d.]+)(ms|s|m|h|d)/g)];
  return parts.length ? parts.reduce((sum, [, number, unit]) => sum + number * UNITS[unit], 0) : null;
};
const spelled = text => text.replace(/^([\d.]+)m$/, '$1 min').replace(/^([\d.]+)(ms|s|h|d)$/, '$1 $2');

let state = { query: '', time: { ...DEFAULTS }, inputs: { input: { text: '' } } };
let shownInput = 'input',
  eventForm = 'table',
  shownOutput = 0,
  rowForm = 'table',
  answer = null,
  picture,
  timer = 0,
  turn = 0;

// ---- The link: the state as compressed JSON in the fragment, which browsers do not send to servers.
async function pack(value) {
  const stream = new Blob([JSON.stringify(value)]).stream().pipeThrough(new CompressionStream('deflate-raw'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = '';
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), c => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'))).json();
}

function load(request) {
  state = {
    query: request.query ?? '',
    time: { ...DEFAULTS, ...request.time },
    inputs: structuredClone(request.inputs ?? {}),
  };
  if (request.start) state.start = request.start;
  if (!Object.keys(state.inputs).length) state.inputs.input = { text: '' };
  for (const input of Object.values(state.inputs))
    if (input.text === undefined) {
      input.text = (input.events ?? [])
        .map(({ value, arrived }) => JSON.stringify(arrived ? { ...value, arrived } : value))
        .join('\n');
      if (input.events?.some(({ arrived }) => arrived)) input.arrival = 'arrived';
      delete input.events;
    }
  shownInput = Object.keys(state.inputs)[0];
  $('#text').value = state.query;
  for (const name of SLIDERS) {
    const field = $(`[name=${name}]`),
      value = state.time[name];
    const scale =
      SCALE.includes(value) || value === 'off' ? SCALE : [...SCALE, value].sort((a, b) => millis(a) - millis(b));
    field.scale = name === 'early_arrival' ? [...scale, 'off'] : scale;
    field.max = field.scale.length - 1;
    field.value = field.scale.indexOf(value);
    field.nextElementSibling.textContent = spelled(value);
  }
  for (const name of CHOICES) $(`[name=${name}]`).value = state.time[name];
  showInput();
  changed(0);
}

// ---- The editor: highlighted text below a transparent textarea.
function highlight() {
  const text = $('#text').value,
    out = [],
    place = $('#highlighted');
  const marks = (answer?.diagnostics ?? []).filter(({ line }) => line);
  text.split('\n').forEach((line, at) => {
    const row = [element('span', { class: 'n' }, String(at + 1))],
      mark = marks.find(mark => mark.line === at + 1);
    let column = 1;
    for (const [token, comment, string, word] of line.matchAll(
      /(--.*|\/\*.*?(?:\*\/|$))|('[^']*'?)|([\p{L}\p{N}_.]+)|[^]/gu,
    )) {
      const after = line.slice(column - 1 + token.length),
        call = /^\s*\(/.test(after);
      const kind = comment
        ? 'c'
        : string
          ? 's'
          : word && KEYWORDS.has(word.toUpperCase())
            ? 'k'
            : word && call
              ? 'f'
              : '';
      const wrong =
        mark && column < mark.column + Math.max(1, mark.length) && column + token.length > mark.column ? ' wrong' : '';
      row.push(kind || wrong ? element('span', { class: kind + wrong }, token) : token);
      column += token.length;
    }
    out.push(...row, '\n');
  });
  place.replaceChildren(...out);
  place.scrollLeft = $('#text').scrollLeft;
}
// As the terminal shows them: the line, a caret under the place, the hint.
function showProblems() {
  const lines = state.query.split('\n');
  const shown = [
    ...(answer?.diagnostics ?? []).map(({ severity, code, message, line, column, length, hint }) => {
      const number = String(line),
        pad = ' '.repeat(number.length);
      const where = line
        ? `${number} | ${lines[line - 1] ?? ''}\n${pad} | ${' '.repeat(Math.max(0, column - 1))}${'^'.repeat(Math.max(1, length))} `
        : '';
      return [
        severity === 'error' ? 'bad-text' : 'warn-text',
        `${where}${message} (${code})${hint ? `\n${pad} = ${hint}` : ''}`,
      ];
    }),
    ...(answer?.problem ? [['bad-text', answer.problem]] : []),
    ...(answer?.errors ?? [])
      .slice(0, 5)
      .map(({ input, line, text }) => [
        'warn-text',
        `${answer.inputs[input]?.name ?? 'input'}, event ${line}: ${text}`,
      ]),
  ];
  // A name that is no input yet may become one.
  const missing = (answer?.diagnostics ?? []).map(({ message }) => /no input[^`]*`([^`]+)`/.exec(message)?.[1]);
  const adds = [...new Set(missing.filter(Boolean))].slice(0, 3);
  $('#problems').replaceChildren(
    ...shown.map(([kind, text]) => element('pre', { class: `plain ${kind}` }, text)),
    ...adds.map(name => element('button', { type: 'button', class: 'small', 'data-input': name }, `Add input ${name}`)),
  );
}

// ---- Events: as a table whose cells can be edited, or as lines.
const linesOf = name => (state.inputs[name]?.text ?? '').split('\n');
const parsed = line => {
  try {
    const value = JSON.parse(line);
    return value && typeof value === 'object' && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
};
const cellText = value => (value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value));
// A time without its day, and without seconds if no event has any; the whole is in the title, and is what can be edited.
const shortTime = text =>
  /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text)
    ? clockText(Date.parse(text), /\.\d*[1-9]/.test(text) ? 'ms' : eventPrecision())
    : text;
const eventPrecision = () => (answer?.events?.some(({ arrived, happened }) => (arrived ?? 0) % 6e4 || (happened ?? 0) % 6e4) ? 's' : 'min');
const cellValue = text => {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};
function showInput() {
  const names = Object.keys(state.inputs),
    input = state.inputs[shownInput];
  $('#inputs').replaceChildren(
    ...(names.length > 1
      ? names.map(name => element('button', { type: 'button', 'aria-pressed': name === shownInput }, name))
      : []),
  );
  $('#lines').value = input.text;
  $('#arrival').value = input.arrival ?? '';
  $('#partition').value = input.partition ?? '';
  $('#reference').checked = !!input.reference;
  showEvents();
}
const fateOf = line =>
  answer?.events?.find(event => answer.inputs[event.input]?.name === shownInput && event.line === line);
function fateText(event) {
  if (!event) return [''];
  const moved = !event.dropped && event.timestamp !== event.happened && event.timestamp !== null;
  return [
    moved ? `${event.text.replace(/: adjusted$/, '')}: moved to ${clockText(event.timestamp, event.timestamp % 1000 ? 'ms' : eventPrecision())}` : event.text,
    event.dropped || event.verdict === 'lost' ? 'dropped' : moved ? 'late' : '',
  ];
}
function showEvents() {
  const lines = linesOf(shownInput),
    rows = lines.map((line, at) => [at, parsed(line), line]).filter(([, , line]) => line.trim());
  const { arrival } = state.inputs[shownInput];
  const names = new Set(rows.flatMap(([, value]) => Object.keys(value ?? {})));
  names.delete(arrival);
  const columns = [...names].slice(0, 12);
  $('#event-count').textContent = `${rows.length.toLocaleString('en')}, in order of arrival`;
  $('#event-table').hidden = eventForm !== 'table';
  $('#event-lines').hidden = eventForm !== 'lines';
  if (
    eventForm !== 'table' ||
    ($('#event-table').contains(document.activeElement) && document.activeElement.isContentEditable)
  )
    return;
  if (!rows.length)
    return $('#event-table').replaceChildren(
      element('div', { class: 'empty' }, 'No events yet. Add one, paste JSON lines, or take a sample of a hub.'),
    );
  const head = element(
    'tr',
    {},
    element('th', { class: 'num' }, '#'),
    element('th', {}, 'arrived'),
    ...columns.map(name => element('th', {}, name)),
    element('th', {}, 'fate'),
  );
  const body = rows.slice(0, 300).map(([at, value, line]) => {
    const event = fateOf(at + 1),
      [text, kind] = fateText(event);
    const edit = name => {
      const attributes = {
        contenteditable: 'plaintext-only',
        role: 'textbox',
        'aria-label': `${name} of event ${at + 1}`,
      };
      const text = cellText(value[name]);
      return element('span', { ...attributes, 'data-line': at, 'data-field': name, title: text }, shortTime(text));
    };
    const cells = value
      ? columns.map(name => element('td', {}, edit(name)))
      : [element('td', { colspan: Math.max(1, columns.length) }, line)];
    const arrived =
      value && arrival && value[arrival] !== undefined
        ? edit(arrival)
        : event
          ? clockText(event.arrived, eventPrecision())
          : '';
    return element(
      'tr',
      { 'data-event': at + 1 },
      element('td', { class: 'num faint' }, String(at + 1)),
      element('td', { class: 'nowrap' }, arrived),
      ...cells,
      element('td', {}, element('button', { type: 'button', class: `link ${kind || 'fine'}` }, text || '…')),
    );
  });
  $('#event-table').replaceChildren(element('table', {}, element('thead', {}, head), element('tbody', {}, ...body)));
}
function editCell(cell) {
  const lines = linesOf(shownInput),
    value = parsed(lines[+cell.dataset.line]),
    text = cell.textContent.trim();
  if (!value || cellText(value[cell.dataset.field]) === text) return showEvents();
  if (text === '') delete value[cell.dataset.field];
  else value[cell.dataset.field] = cellValue(text);
  lines[+cell.dataset.line] = JSON.stringify(value);
  state.inputs[shownInput].text = lines.join('\n');
  $('#lines').value = state.inputs[shownInput].text;
  changed();
}
// A copy of the last event, one minute later in each of its times.
function addEvent() {
  const lines = linesOf(shownInput).filter(line => line.trim()),
    value = parsed(lines.at(-1) ?? '') ?? { t: new Date().toISOString() };
  for (const [name, text] of Object.entries(value))
    if (typeof text === 'string' && /^\d{4}-\d\d-\d\dT/.test(text))
      value[name] = new Date(Date.parse(text) + 6e4).toISOString().replace('.000Z', 'Z');
  state.inputs[shownInput].text = [...lines, JSON.stringify(value)].join('\n');
  showInput();
  changed(0);
}

// ---- Runs.
function changed(delay = 250) {
  clearTimeout(timer);
  highlight();
  timer = setTimeout(run, delay);
}
async function run() {
  const mine = ++turn,
    request = { query: state.query, time: state.time, inputs: state.inputs };
  if (state.start) request.start = state.start;
  pack(request).then(text => history.replaceState(null, '', `${location.pathname}#${text}`));
  const verdict = $('#verdict'),
    say = (kind, text) => {
      verdict.className = `pill ${kind}`;
      verdict.textContent = text;
    };
  try {
    const got = await call('POST', '/api/playground', request);
    if (mine !== turn) return;
    answer = got;
    const bad = got.diagnostics.filter(({ severity }) => severity === 'error').length,
      rows = (got.outputs ?? []).reduce((sum, { count }) => sum + count, 0);
    bad
      ? say('bad', `${bad} error${bad > 1 ? 's' : ''}`)
      : got.problem
        ? say('bad', 'no result')
        : say('good', `fine, ${rows.toLocaleString('en')} row${rows === 1 ? '' : 's'} in ${got.elapsed_ms} ms`);
  } catch (error) {
    if (mine !== turn) return;
    if (error.code === 'full') {
      timer = setTimeout(run, 700);
      return;
    }
    answer = { diagnostics: [], problem: `${errorText(error)}${error.hint ? `\n${error.hint}` : ''}` };
    say('bad', 'not run');
  }
  show();
}
function show() {
  highlight();
  showProblems();
  showEvents();
  showRows();
  picture.set(answer.events ?? [], answer.watermarks ?? [], millis(state.time.late_arrival));
  const facts = [
    ...(answer.state ?? []).map(({ text }) => text),
    answer.reads_back_by_arrival
      ? `a start at T reads back to T − ${spelled(answer.reads_back_by_arrival)} by arrival`
      : '',
  ].filter(Boolean);
  $('#explain').replaceChildren(
    answer.explain ?? 'A query without errors has a plan.',
    ...(facts.length ? ['\n', element('span', { class: 'c' }, facts.join('\n'))] : []),
  );
}
function showRows() {
  const outputs = answer.outputs ?? [];
  shownOutput = Math.min(shownOutput, Math.max(0, outputs.length - 1));
  const output = outputs[shownOutput];
  $('#outputs').replaceChildren(
    ...(outputs.length > 1
      ? outputs.map(({ name }, at) =>
          element('button', { type: 'button', 'data-output': at, 'aria-pressed': at === shownOutput }, name),
        )
      : []),
  );
  $('#row-count').textContent = output ? `${output.count.toLocaleString('en')} to ${output.name}` : '';
  const place = $('#row-table');
  if (!output?.rows.length)
    return place.replaceChildren(
      element(
        'div',
        { class: 'empty' },
        answer.diagnostics?.length || answer.problem
          ? 'The query gave no rows.'
          : 'No rows: no window has ended, or no event passed the conditions.',
      ),
    );
  if (rowForm === 'json')
    return place.replaceChildren(
      element(
        'pre',
        { class: 'plain' },
        output.rows
          .slice(0, 300)
          .map(row => JSON.stringify(row))
          .join('\n'),
      ),
    );
  const columns = [...new Set(output.rows.flatMap(row => Object.keys(row)))].slice(0, 30),
    numeric = new Set(
      columns.filter(name =>
        output.rows.every(row => row[name] === null || row[name] === undefined || typeof row[name] === 'number'),
      ),
    );
  const cell = (name, value) =>
    element(
      'td',
      numeric.has(name) ? { class: 'num' } : /^\d{4}-\d\d-\d\dT/.test(value) ? { class: 'nowrap' } : {},
      value === null ? 'NULL' : cellText(value).replace(/\.0+Z$/, 'Z'),
    );
  const named = output.sources.some(Boolean),
    head = columns.map(name => element('th', numeric.has(name) ? { class: 'num' } : {}, name));
  const rows = output.rows.slice(0, 300).map((row, at) => {
    const cells = columns.map(name => cell(name, row[name]));
    return element('tr', {}, ...cells, ...(named ? [element('td', {}, ...sourcesOf(output.sources[at]))] : []));
  });
  if (named) head.push(element('th', {}, 'from events'));
  place.replaceChildren(
    element('table', {}, element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...rows)),
  );
}
// The events of a row, by their numbers in the table of events; with several inputs, by input too.
function sourcesOf(sources) {
  if (!sources) return ['not known'];
  const several = answer.inputs.length > 1,
    shown = sources.events.slice(0, 8),
    rest = sources.count - shown.length;
  const links = shown.flatMap(([input, line], at) => [
    at ? ', ' : '',
    element(
      'button',
      { type: 'button', class: 'link fine', 'data-source': `${input}/${line}` },
      several ? `${answer.inputs[input].name} ${line}` : String(line),
    ),
  ]);
  return rest > 0 ? [...links, ` and ${rest.toLocaleString('en')} more`] : links;
}
function choose(event) {
  picture.choose(picture.events.find(other => other === event) ?? null, true);
  select(event);
}
function select(event) {
  const name = answer.inputs[event.input]?.name ?? 'input',
    value = parsed((state.inputs[name]?.text ?? '').split('\n')[event.line - 1] ?? '');
  showFate($('#fate-body'), value ? { ...event, value } : event, {
    where: `${name} / partition ${event.partition} / event ${event.line}`,
    late: millis(state.time.late_arrival),
  });
}

// ---- Downloads: the files of a job folder as one .tar.
function tar(files) {
  const parts = [],
    text = new TextEncoder();
  for (const [path, content] of Object.entries(files)) {
    const bytes = text.encode(content),
      head = new Uint8Array(512),
      put = (value, at) => head.set(text.encode(value), at);
    put(path.slice(0, 99), 0);
    put('0000644\0', 100);
    put('0000000\0', 108);
    put('0000000\0', 116);
    put(`${bytes.length.toString(8).padStart(11, '0')}\0`, 124);
    put('00000000000\0', 136);
    put('        ', 148);
    put('0', 156);
    put('ustar\u000000', 257);
    put(
      `${head
        .reduce((sum, byte) => sum + byte, 0)
        .toString(8)
        .padStart(6, '0')}\0 `,
      148,
    );
    parts.push(head, bytes, new Uint8Array((512 - (bytes.length % 512)) % 512));
  }
  return new Blob([...parts, new Uint8Array(1024)], { type: 'application/x-tar' });
}
function save(withRows) {
  if (!answer?.outputs)
    return toast('A query with errors cannot be saved as a folder.', 'The link carries it as it is.', true);
  const name = 'playground',
    files = {},
    quoted = value => JSON.stringify(value);
  const time = Object.entries(state.time)
    .map(([key, value]) => `${key} = ${quoted(value)}`)
    .join('\n');
  const inputs = Object.entries(state.inputs).map(
    ([input, { arrival, partition, reference }]) =>
      `[inputs.${quoted(input)}]\npath = ${quoted(`input/${input}.jsonl`)}\n${reference ? 'reference = true\n' : ''}${arrival ? `arrival = ${quoted(arrival)}\n` : ''}${partition ? `partition = ${quoted(partition)}\n` : ''}`,
  );
  files[`${name}/job.toml`] = `name = "${name}"\nquery = "query.saql"\n\n[time]\n${time}\n\n${inputs.join('\n')}`;
  files[`${name}/query.saql`] = `${state.query.trimEnd()}\n`;
  for (const [input, { text }] of Object.entries(state.inputs))
    files[`${name}/input/${input}.jsonl`] = `${text.trimEnd()}\n`;
  if (withRows)
    for (const output of answer.outputs)
      files[`${name}/expected/${output.name}.jsonl`] = output.rows.map(row => `${JSON.stringify(row)}\n`).join('');
  const link = element('a', { href: URL.createObjectURL(tar(files)), download: `${name}.tar` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  toast(
    'Saved as playground.tar.',
    withRows
      ? 'tar xf playground.tar && highwater test playground'
      : 'tar xf playground.tar && highwater run playground',
  );
}

// ---- Examples, and the sample of a hub.
let examples = [];
async function showExamples() {
  ({ examples } = await call('GET', '/api/playground/examples').catch(() => ({ examples: [] })));
  $('#example-list').replaceChildren(
    ...examples.map(({ title, text }, at) =>
      element(
        'li',
        {},
        element('span', {}),
        element('div', {}, element('b', {}, title), element('p', {}, text)),
        element('button', { type: 'button', 'data-example': at }, 'Open'),
      ),
    ),
  );
}
async function takeSample(hub, max) {
  const { places } = await call('GET', `/api/hubs/${encodeURIComponent(hub)}`),
    events = [];
  for (const { partition, start, end } of places.slice(0, 16)) {
    const from = Math.max(start, end - max);
    if (from >= end) continue;
    const { messages } = await call(
      'GET',
      `/hubs/${encodeURIComponent(hub)}/partitions/${partition}/messages?from=${from}&max=${max}`,
    );
    for (const { enqueued, value } of messages)
      if (value && typeof value === 'object')
        events.push({ enqueued, line: { ...value, _arrived: enqueued, _partition: partition } });
  }
  events.sort((a, b) => (a.enqueued < b.enqueued ? -1 : 1));
  return {
    arrival: '_arrived',
    ...(places.length > 1 ? { partition: '_partition' } : {}),
    text: events
      .slice(-max)
      .map(({ line }) => JSON.stringify(line))
      .join('\n'),
  };
}
async function openJob(name) {
  const job = await call('GET', `/api/jobs/${encodeURIComponent(name)}`),
    inputs = {};
  for (const input of job.inputs ?? [])
    inputs[input.name] = input.partitions[0]
      ? await takeSample(input.partitions[0].hub, 100).catch(() => ({ text: '' }))
      : { text: '' };
  load({ query: job.query, inputs, time: job.time });
}

document.addEventListener('DOMContentLoaded', async () => {
  picture = new Picture($('#picture'), { select });
  window.picture = picture;
  const text = $('#text');
  text.addEventListener('input', () => {
    state.query = text.value;
    changed();
  });
  text.addEventListener('scroll', () => {
    $('#highlighted').scrollLeft = text.scrollLeft;
  });
  text.addEventListener('keydown', event => {
    if (event.key === 'Tab' && !event.shiftKey && !event.ctrlKey && text.selectionStart !== text.selectionEnd) {
      event.preventDefault();
      text.setRangeText('  ');
      state.query = text.value;
      changed();
    }
  });
  for (const name of SLIDERS)
    $(`[name=${name}]`).addEventListener('input', ({ target }) => {
      state.time[name] = target.scale[+target.value];
      target.nextElementSibling.textContent = spelled(state.time[name]);
      changed(80);
    });
  for (const name of CHOICES)
    $(`[name=${name}]`).addEventListener('change', ({ target }) => {
      state.time[name] = target.value;
      changed(0);
    });
  $('#lines').addEventListener('input', ({ target }) => {
    state.inputs[shownInput].text = target.value;
    changed();
  });
  for (const name of ['arrival', 'partition'])
    $(`#${name}`).addEventListener('input', ({ target }) => {
      target.value ? (state.inputs[shownInput][name] = target.value) : delete state.inputs[shownInput][name];
      changed();
    });
  $('#reference').addEventListener('change', ({ target }) => {
    target.checked ? (state.inputs[shownInput].reference = true) : delete state.inputs[shownInput].reference;
    changed(0);
  });
  $('#event-table').addEventListener('focusin', ({ target }) => {
    if (target.dataset.field) target.textContent = target.title;
  });
  $('#event-table').addEventListener('focusout', ({ target }) => {
    if (target.dataset.field) editCell(target);
  });
  $('#event-table').addEventListener('keydown', event => {
    if (event.key === 'Enter' && event.target.dataset.field) {
      event.preventDefault();
      event.target.blur();
    }
  });
  $('#event-table').addEventListener('click', ({ target }) => {
    const event = target.closest('button') && fateOf(+target.closest('tr').dataset.event);
    if (event) choose(event);
  });
  $('#row-table').addEventListener('click', ({ target }) => {
    const [input, line] = (target.dataset.source ?? '').split('/').map(Number);
    const event = answer?.events?.find(event => event.input === input && event.line === line);
    if (event) choose(event);
  });
  $('#add-event').addEventListener('click', addEvent);
  $('#inputs').addEventListener('click', ({ target }) => {
    if (target.nodeName === 'BUTTON') {
      shownInput = target.textContent;
      showInput();
    }
  });
  $('#outputs').addEventListener('click', ({ target }) => {
    if (target.dataset.output) {
      shownOutput = +target.dataset.output;
      showRows();
    }
  });
  for (const [place, set] of [
    [
      '#event-forms',
      form => {
        eventForm = form;
        showEvents();
      },
    ],
    [
      '#row-forms',
      form => {
        rowForm = form;
        if (answer) showRows();
      },
    ],
  ])
    $(place).addEventListener('click', ({ target }) => {
      if (!target.dataset.form) return;
      for (const other of target.parentElement.children) other.setAttribute('aria-pressed', other === target);
      set(target.dataset.form);
    });
  // The heading is live in other pages; here its buttons are found by delegation all the same.
  document.addEventListener('click', async ({ target }) => {
    if (target.id === 'copy-link') copy(location.href);
    else if (target.id === 'save-case') save(true);
    else if (target.id === 'save-job') save(false);
    else if (target.dataset.input) {
      shownInput = target.dataset.input;
      state.inputs[shownInput] = { text: '' };
      showInput();
      changed(0);
    } else if (target.dataset.example) {
      load(examples[+target.dataset.example].request);
      $('#examples').close();
    } else if (target.dataset.dialog === 'examples') showExamples();
    else if (target.dataset.dialog === 'sample') {
      const { hubs } = await call('GET', '/api/hubs').catch(() => ({ hubs: [] }));
      $('#sample select').replaceChildren(...hubs.map(({ name }) => element('option', {}, name)));
    }
  });
  $('#sample-form').addEventListener('submit', async event => {
    event.preventDefault();
    const { hub, max } = Object.fromEntries(new FormData(event.target));
    try {
      Object.assign(state.inputs[shownInput], { partition: undefined }, await takeSample(hub, +max));
      $('#sample').close();
      showInput();
      changed(0);
    } catch (error) {
      $('.field-error', event.target).textContent = errorText(error);
    }
  });
  document.addEventListener('highwater:zone', () => answer && show());
  const job = new URLSearchParams(location.search).get('job'),
    fragment = location.hash.slice(1);
  if (fragment)
    return unpack(fragment)
      .then(load)
      .catch(() => {
        toast('The link is damaged.', '', true);
        load({});
      });
  if (job)
    return openJob(job).catch(error => {
      toast(errorText(error), error.hint, true);
      load({});
    });
  await showExamples();
  load(examples[0]?.request ?? {});
});
