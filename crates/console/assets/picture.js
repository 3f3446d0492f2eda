// The picture of time: event time against arrival time, with the watermark of each partition as steps.
// Used by the job's page (live) and by the playground (at rest). Memory is bounded: old points are dropped.
'use strict';
const EVENTS_MAX = 12000,
  STEPS_MAX = 3000,
  FRAME_MS = 80,
  KEPT_MS = 330e3,
  NEAR_PX = 14;
const STEPS_MS = [
  1, 10, 100, 250, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5,
  6048e5,
];

class Picture {
  // options: late, the late-arrival bound in ms or null; select(event or null), for a chosen event; live: the view follows time.
  constructor(place, { late = null, live = false, select = () => {} } = {}) {
    Object.assign(this, {
      place,
      late,
      live,
      select,
      events: [],
      steps: new Map(),
      chosen: null,
      hovered: null,
      span: 60e3,
      from: null,
      latest: null,
      frozen: false,
      frames: 0,
    });
    this.canvas = element('canvas', {
      tabindex: '0',
      role: 'img',
      'aria-label': 'Event time against arrival time. Arrow keys choose an event.',
    });
    place.replaceChildren(this.canvas);
    this.listen();
    new ResizeObserver(() => this.soon()).observe(place);
    for (const name of ['highwater:theme', 'highwater:zone'])
      document.addEventListener(name, () => {
        this.colours = null;
        this.soon();
      });
    if (live)
      setInterval(() => {
        if (!this.frozen && !document.hidden && this.from === null && this.latest) this.soon();
      }, FRAME_MS);
    this.soon();
  }

  // Replaces everything: the playground.
  set(events, watermarks, late) {
    Object.assign(this, { events: [], steps: new Map(), from: null, late, chosen: null, hovered: null });
    this.add(events, watermarks);
    const times = [...events, ...watermarks].map(({ arrived }) => arrived);
    this.first = Math.min(...times);
    this.last = Math.max(...times);
    this.soon();
  }

  add(events, watermarks) {
    for (const event of events) {
      if (event.happened === null || event.happened === undefined) continue;
      this.events.push(event);
      if (!this.latest || event.arrived > this.latest.arrived)
        this.latest = { arrived: event.arrived, seen: performance.now() };
    }
    for (const step of watermarks) {
      const key = `${step.input}/${step.partition}/${step.substream ?? ''}`;
      if (!this.steps.has(key)) {
        if (this.steps.size >= 64) continue;
        this.steps.set(key, { series: this.series(step), points: [] });
      }
      const { points } = this.steps.get(key);
      points.push(step.arrived, step.watermark);
      if (points.length > 2 * STEPS_MAX) points.splice(0, STEPS_MAX);
    }
    if (this.events.length > EVENTS_MAX) this.events.splice(0, this.events.length - Math.floor(EVENTS_MAX * 0.8));
    // A live picture shows five minutes at most.
    if (this.live && this.latest) {
      const old = this.events.findIndex(({ arrived }) => arrived >= this.latest.arrived - KEPT_MS);
      if (old > 0) this.events.splice(0, old);
    }
    this.soon();
  }

  series({ input, partition, substream }) {
    return substream
      ? [...String(substream)].reduce((sum, c) => sum + c.charCodeAt(0), 0) % 4
      : (input * 2 + partition) % 4;
  }

  // The shown span of arrival times.
  range() {
    if (!this.live) {
      if (this.from !== null) return [this.from, this.from + this.span];
      const pad = Math.max((this.last - this.first) * 0.04, 500);
      return [this.first - pad, this.last + pad];
    }
    if (this.from !== null) return [this.from, this.from + this.span];
    const now = this.latest
      ? this.latest.arrived + (this.frozen ? 0 : Math.min(performance.now() - this.latest.seen, 3000))
      : Date.now();
    // Before there are events for the whole span, the picture has those that there are, and at least ten seconds.
    const known = this.events.length ? (now - this.events[0].arrived) * 1.05 : 0,
      span = Math.min(this.span, Math.max(known, 10e3));
    return [now - span, now + span * 0.02];
  }

  soon() {
    if (this.waiting) return;
    const wait = Math.max(0, FRAME_MS - (performance.now() - (this.drawn ?? 0)));
    this.waiting = setTimeout(
      () =>
        requestAnimationFrame(() => {
          this.waiting = 0;
          this.drawn = performance.now();
          this.draw();
          this.frames++;
        }),
      wait,
    );
  }

  palette() {
    if (this.colours) return this.colours;
    const probe = element('span');
    this.place.append(probe);
    const read = name => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    this.colours = {
      series: ['accent', 'second', 'third', 'fourth'].map(read),
      line: read('line'),
      soft: read('soft'),
      faint: read('faint'),
      bad: read('bad'),
      panel: read('panel'),
      ink: read('ink'),
    };
    probe.remove();
    return this.colours;
  }

  scale() {
    const { clientWidth: width, clientHeight: height } = this.place,
      ratio = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const narrow = width < 520,
      box = { left: narrow ? 60 : 66, right: width - (narrow ? 10 : 74), top: 10, bottom: height - 40 };
    const [x0, x1] = this.range(),
      shown = this.events.filter(({ arrived }) => arrived >= x0 && arrived <= x1);
    let low = Infinity,
      high = -Infinity;
    const see = value => {
      if (value < low) low = value;
      if (value > high) high = value;
    };
    for (const event of shown) {
      see(event.happened);
      if (event.timestamp !== null && event.timestamp !== undefined) see(event.timestamp);
    }
    for (const { points } of this.steps.values())
      for (let at = 0; at < points.length; at += 2) if (points[at] >= x0 && points[at] <= x1) see(points[at + 1]);
    if (low > high) {
      low = x0;
      high = x1;
    }
    // One event from another year must not flatten the others: it is drawn at the edge.
    const reach = Math.max(x1 - x0, (this.late ?? 0) * 1.3) * 1.5;
    low = Math.max(low, x0 - reach);
    high = Math.min(high, x1 + reach);
    if (low > high) {
      low = x0 - reach;
      high = x1 + reach;
    }
    const pad = Math.max((high - low) * 0.05, 50),
      [y0, y1] = [low - pad, high + pad];
    return {
      width,
      height,
      ratio,
      box,
      shown,
      x0,
      x1,
      y0,
      y1,
      px: time => box.left + ((time - x0) / (x1 - x0)) * (box.right - box.left),
      py: time =>
        Math.min(box.bottom, Math.max(box.top, box.bottom - ((time - y0) / (y1 - y0)) * (box.bottom - box.top))),
    };
  }

  draw() {
    const pen = this.canvas.getContext('2d'),
      colours = this.palette(),
      scale = this.scale();
    this.shownScale = scale;
    pen.setTransform(scale.ratio, 0, 0, scale.ratio, 0, 0);
    pen.clearRect(0, 0, scale.width, scale.height);
    pen.font = '11.5px ' + getComputedStyle(document.body).fontFamily;
    if (!(scale.x1 > scale.x0) || !Number.isFinite(scale.x0)) return this.say(pen, scale, 'No events yet.');
    this.drawAxes(pen, scale, colours);
    this.drawBounds(pen, scale, colours);
    pen.save();
    pen.beginPath();
    pen.rect(
      scale.box.left,
      scale.box.top - 6,
      scale.box.right - scale.box.left,
      scale.box.bottom - scale.box.top + 12,
    );
    pen.clip();
    this.drawSteps(pen, scale, colours);
    this.drawEvents(pen, scale, colours);
    pen.restore();
    if (!scale.shown.length) this.say(pen, scale, 'No event arrived in this time.');
  }

  say(pen, { box }, text) {
    pen.fillStyle = this.palette().soft;
    pen.textAlign = 'center';
    pen.textBaseline = 'middle';
    pen.fillText(text, (box.left + box.right) / 2, (box.top + box.bottom) / 2);
  }

  drawAxes(pen, { box, x0, x1, y0, y1, px, py }, colours) {
    const ticks = (from, to, room) => {
      const step = STEPS_MS.find(step => (to - from) / step <= room) ?? STEPS_MS.at(-1),
        out = [];
      for (let at = Math.ceil(from / step) * step; at <= to; at += step) out.push(at);
      return [out, step];
    };
    const [xs, xStep] = ticks(x0, x1, Math.max(2, Math.floor((box.right - box.left) / 78))),
      [ys, yStep] = ticks(y0, y1, Math.max(2, Math.floor((box.bottom - box.top) / 42)));
    const precision = step => (step < 1000 ? 'ms' : step >= 864e5 ? 'day' : step >= 6e4 ? 'min' : 's');
    pen.strokeStyle = colours.line;
    pen.fillStyle = colours.soft;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const x of xs) {
      pen.moveTo(px(x), box.top);
      pen.lineTo(px(x), box.bottom);
    }
    for (const y of ys) {
      pen.moveTo(box.left, py(y));
      pen.lineTo(box.right, py(y));
    }
    pen.stroke();
    pen.textAlign = 'center';
    pen.textBaseline = 'top';
    for (const x of xs) {
      const at = px(x);
      if (at > box.left + 16 && at < box.right - 4) pen.fillText(clockText(x, precision(xStep)), at, box.bottom + 6);
    }
    pen.fillText(
      `arrival time (${zone === 'utc' ? 'UTC' : 'local time'}) →`,
      (box.left + box.right) / 2,
      box.bottom + 23,
    );
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    for (const y of ys) pen.fillText(clockText(y, precision(yStep)), box.left - 6, py(y));
  }

  // The lines of no delay and of the late bound. Their labels stand at the right end, one below the other.
  drawBounds(pen, { box, x0, x1, y0, y1, px, py }, colours) {
    const labels = [];
    const line = (by, name, dash) => {
      // Cut to the box by hand: py does not leave it.
      const from = Math.max(x0, y0 + by),
        to = Math.min(x1, y1 + by);
      if (from >= to) return;
      pen.setLineDash(dash);
      pen.beginPath();
      pen.moveTo(px(from), py(from - by));
      pen.lineTo(px(to), py(to - by));
      pen.stroke();
      pen.setLineDash([]);
      if (to === x1 && box.right + 70 <= this.place.clientWidth) labels.push([name, py(to - by)]);
    };
    pen.strokeStyle = colours.faint;
    pen.lineWidth = 1;
    line(0, 'no delay', []);
    if (this.late > 0) line(this.late, 'late bound', [5, 5]);
    pen.fillStyle = colours.soft;
    pen.textAlign = 'left';
    pen.textBaseline = 'middle';
    let above = -Infinity;
    for (const [name, y] of labels.sort((a, b) => a[1] - b[1])) {
      above = Math.max(y, above + 14);
      pen.fillText(name, box.right + 5, above);
    }
  }

  drawSteps(pen, { x0, x1, px, py }, colours) {
    pen.lineWidth = 2;
    for (const { series, points } of this.steps.values()) {
      pen.strokeStyle = colours.series[series];
      pen.beginPath();
      let begun = false,
        y = 0;
      for (let at = 0; at < points.length && points[at] <= x1; at += 2) {
        const next = points[at + 2];
        if (next !== undefined && next < x0) continue;
        const x = px(Math.max(points[at], x0)),
          up = py(points[at + 1]);
        if (begun) {
          pen.lineTo(x, y);
          pen.lineTo(x, up);
        } else {
          pen.moveTo(x, up);
          begun = true;
        }
        y = up;
      }
      if (begun) pen.lineTo(px(x1), y);
      pen.stroke();
    }
  }

  drawEvents(pen, { shown, px, py }, colours) {
    const moved = event => !event.dropped && event.timestamp !== null && event.timestamp !== event.happened;
    const dense = shown.length > 1500,
      radius = dense ? 1.8 : 2.6;
    for (let series = 0; series < 4; series++) {
      pen.fillStyle = colours.series[series];
      pen.globalAlpha = 0.75;
      pen.beginPath();
      for (const event of shown) {
        if (event.dropped || moved(event) || this.series(event) !== series) continue;
        const x = px(event.arrived),
          y = py(event.happened);
        if (dense) pen.rect(x - radius, y - radius, 2 * radius, 2 * radius);
        else {
          pen.moveTo(x + radius, y);
          pen.arc(x, y, radius, 0, 7);
        }
      }
      pen.fill();
      pen.globalAlpha = 1;
    }
    for (const event of shown)
      if (moved(event))
        this.drawMoved(
          pen,
          px(event.arrived),
          py(event.happened),
          py(event.timestamp),
          colours.series[this.series(event)],
          colours,
        );
    pen.strokeStyle = colours.bad;
    pen.lineWidth = 2.2;
    pen.beginPath();
    for (const event of shown)
      if (event.dropped) {
        const x = px(event.arrived),
          y = py(event.happened);
        pen.moveTo(x - 4.5, y - 4.5);
        pen.lineTo(x + 4.5, y + 4.5);
        pen.moveTo(x - 4.5, y + 4.5);
        pen.lineTo(x + 4.5, y - 4.5);
      }
    pen.stroke();
    for (const event of [this.hovered, this.chosen])
      if (event) {
        pen.strokeStyle = colours.ink;
        pen.lineWidth = 1.6;
        pen.beginPath();
        pen.arc(px(event.arrived), py(event.happened), 8, 0, 7);
        pen.stroke();
      }
  }

  // A hollow circle where it happened, an arrow to the timestamp that it was given.
  drawMoved(pen, x, from, to, colour, colours) {
    pen.strokeStyle = colour;
    pen.fillStyle = colour;
    pen.lineWidth = 1.6;
    pen.beginPath();
    pen.moveTo(x, from);
    pen.lineTo(x, to);
    pen.stroke();
    const up = Math.sign(to - from);
    if (Math.abs(to - from) > 14) {
      pen.beginPath();
      pen.moveTo(x, to - up * 3);
      pen.lineTo(x - 4, to - up * 10);
      pen.lineTo(x + 4, to - up * 10);
      pen.fill();
    }
    pen.beginPath();
    pen.arc(x, to, 3.4, 0, 7);
    pen.fill();
    pen.fillStyle = colours.panel;
    pen.beginPath();
    pen.arc(x, from, 3.6, 0, 7);
    pen.fill();
    pen.stroke();
  }

  // The event nearest to a point of the canvas.
  near(x, y) {
    const scale = this.shownScale;
    if (!scale) return null;
    let best = null,
      least = NEAR_PX ** 2;
    for (const event of scale.shown) {
      const dx = scale.px(event.arrived) - x;
      if (Math.abs(dx) > NEAR_PX) continue;
      for (const time of [event.happened, event.timestamp]) {
        if (time === null || time === undefined) continue;
        const distance = dx ** 2 + (scale.py(time) - y) ** 2,
          weight = event.verdict === 'on_time' ? distance : distance * 0.5;
        if (weight < least) {
          least = weight;
          best = event;
        }
      }
    }
    return best;
  }

  choose(event, pinned) {
    if (pinned) this.chosen = event;
    else if (this.hovered === event) return;
    else this.hovered = event;
    if (event && (pinned || !this.chosen)) this.select(event, pinned);
    this.canvas.style.cursor = event ? 'pointer' : '';
    this.soon();
  }

  listen() {
    const { canvas } = this;
    let drag = null;
    const at = event => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener('pointerdown', event => {
      drag = { x: event.clientX, from: this.range()[0], moved: false };
      if (event.pointerType === 'mouse') canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', event => {
      if (!drag) return this.choose(this.near(...at(event)), false);
      const by = event.clientX - drag.x;
      if (Math.abs(by) < 4 && !drag.moved) return;
      drag.moved = true;
      const [x0, x1] = this.range(),
        { box } = this.shownScale;
      this.span = x1 - x0;
      this.from = drag.from - (by / (box.right - box.left)) * this.span;
      this.soon();
    });
    canvas.addEventListener('pointerup', event => {
      if (drag && !drag.moved) this.choose(this.near(...at(event)), true);
      drag = null;
    });
    canvas.addEventListener('pointerleave', () => {
      if (!drag) this.choose(null, false);
    });
    canvas.addEventListener(
      'wheel',
      event => {
        event.preventDefault();
        const [x0, x1] = this.range(),
          { box } = this.shownScale,
          [x] = at(event);
        const share = Math.min(1, Math.max(0, (x - box.left) / (box.right - box.left)));
        const span = Math.min(36e5, Math.max(50, (x1 - x0) * (event.deltaY > 0 ? 1.2 : 1 / 1.2)));
        // At the right end of a live picture, the view goes on following.
        if (!(this.live && this.from === null && share > 0.85)) this.from = x0 + (x1 - x0 - span) * share;
        this.span = span;
        this.soon();
      },
      { passive: false },
    );
    canvas.addEventListener('dblclick', () => {
      this.from = null;
      if (this.live) this.span = 60e3;
      this.soon();
    });
    canvas.addEventListener('keydown', event => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === 'Escape') return this.choose(null, true);
      if (!by || !this.shownScale?.shown.length) return;
      event.preventDefault();
      const shown = this.shownScale.shown,
        now = shown.indexOf(this.chosen);
      this.choose(
        shown[Math.min(shown.length - 1, Math.max(0, now < 0 ? (by < 0 ? shown.length - 1 : 0) : now + by))],
        true,
      );
    });
  }
}

// ---- The fate of one event, beside the picture.
const duration = ms => {
  const s = Math.abs(ms) / 1000,
    whole = Math.round(s);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 59.95) return `${s.toFixed(1)} s`;
  const two = (large, unit, small, rest) => `${large} ${unit}${small ? ` ${small} ${rest}` : ''}`;
  return whole < 3600
    ? two(Math.floor(whole / 60), 'min', whole % 60, 's')
    : two(Math.floor(whole / 3600), 'h', Math.floor(whole / 60) % 60, 'min');
};
function showFate(place, fate, { where, late = null, command = '' }) {
  const list = element('dl', { class: 'fate' });
  const row = (name, ...value) => list.append(element('dt', {}, name), element('dd', {}, ...value));
  const tone =
    fate.dropped || fate.verdict === 'lost' ? 'verdict lost' : fate.verdict === 'on_time' ? 'verdict fine' : 'verdict';
  list.append(
    element('dt', {}, 'verdict'),
    element('dd', { class: tone }, fate.text ?? fate.verdict.replaceAll('_', ' ')),
  );
  row('place', where);
  if (fate.reason) row('reason', fate.reason);
  const known = time => time !== null && time !== undefined;
  if (known(fate.happened)) row('happened', clockText(fate.happened, 'ms'));
  if (known(fate.arrived)) {
    const by = known(fate.happened) ? fate.arrived - fate.happened : null;
    row(
      'arrived',
      clockText(fate.arrived, 'ms'),
      ' ',
      element(
        'span',
        { class: 'sub' },
        by === null
          ? ''
          : `${duration(by)} ${by < 0 ? 'before it happened' : 'later'}${late ? `; bound ${duration(late)}` : ''}`,
      ),
    );
  }
  if (known(fate.watermark)) row('watermark it met', clockText(fate.watermark, 'ms'));
  if (!fate.dropped && known(fate.timestamp)) row('timestamp given', clockText(fate.timestamp, 'ms'));
  if (fate.substream) row('substream', fate.substream);
  const bound = time => clockText(time, time % 1000 ? 'ms' : 's');
  const windows = (fate.windows ?? []).map(({ start, end }) =>
    end - start < 2 ? `the snapshot of ${bound(end)}` : `(${bound(start)} .. ${bound(end)}]`,
  );
  for (const { start, end, state } of fate.sessions ?? []) {
    const more = [state === 'open' && 'open, may grow', !fate.sessions_exact && 'or longer: not all events were replayed'];
    windows.push(['session', `(${bound(start)} .. ${bound(end)}]`, more.filter(Boolean).join('; ')].join(' ').trimEnd());
  }
  if (fate.sessions && !fate.sessions.length) windows.push('no session: a condition of the query leaves it out');
  if (windows.length)
    row(
      'windows entered',
      ...windows.slice(0, 6).flatMap((text, at) => [...(at ? [element('br')] : []), text]),
      windows.length > 6 ? ` and ${windows.length - 6} more` : '',
    );
  if (fate.source && fate.source !== 'sample') row('known by', fate.source);
  const parts = [list];
  const value = fate.value !== undefined ? JSON.stringify(fate.value) : fate.value_base64;
  if (value !== undefined)
    parts.push(element('pre', { class: 'plain' }, value.length > 4000 ? `${value.slice(0, 4000)}…` : value));
  if (command)
    parts.push(element('p', { class: 'sub' }, 'In a terminal:'), element('pre', { class: 'plain' }, command));
  place.replaceChildren(...parts);
}
