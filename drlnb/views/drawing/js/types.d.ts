/** Types of what the modules are given and share; read by the type check alone. */

/** A widget's model, as anywidget and a report's stub give it. */
interface Model {
  get(name: string): any;
  set(name: string, value: unknown): void;
  save_changes?(): void;
  send(content: object): void;
  widget_manager?: any;
  on(name: string, run: (...args: any[]) => void): void;
  off(name: string, run: (...args: any[]) => void): void;
}
/** What a module's `render` is given. */
interface Rendered {
  model: Model;
  el: HTMLElement;
  signal?: AbortSignal;
}
/** How one series is marked. */
interface Series {
  name: string;
  letter: string;
  colour: string;
  hatch: string;
}
/** A column of the table twin. */
interface Column {
  label: string;
  unit: string;
  definition: string;
  source: string;
  kind: string;
  factor: number;
}
/** A number beside a picture. */
interface Numbered {
  key: string;
  label: string;
  unit: string;
  definition: string;
  value: number | null;
}
/** A changed setting. */
interface Mark {
  t: number;
  label: string;
  said?: string;
  task?: string;
}
/** Marks that lie within a few pixels. */
interface MarkGroup {
  at: number;
  t: number;
  marks: Mark[];
  label: string;
  side: "left" | "right";
  text: string;
}
/** A button of a row or of the shell. */
interface Action {
  name: string;
  label: string;
  confirm: string;
  enabled?: boolean;
  reason?: string | null;
  args?: Record<string, any>;
}
/** What stands at an axis. */
interface Axis {
  label: string;
  unit: string;
  kind: string;
  /** What stands at 0, 1, 2 ... instead of the numbers. */
  words?: string[];
}
/** A row of a timeline. */
interface Lane {
  label: string;
  kind: string;
}
/** A task's share of a column of a lane: between which pixels, what lies below it, and how much was computed. */
interface Share {
  lane: number;
  series: number;
  at: number;
  to: number;
  below: number;
  held: number;
  computed: number;
}
/** A line of a chart, and the rows of its points. */
interface Line {
  label: string;
  series: number;
  dots: boolean;
  step: boolean;
}
type Drawn = Line & { at: number[] };
/** A column as a table shows it. */
interface Shown {
  key: string;
  label: string;
  kind: string;
  minor?: string;
  of: string;
}
/** A price that the page may move: numbers of lines, cold's wait and idle time, standard errors. */
interface Slider {
  label: string;
  value: number;
  cost: number;
  cold: Point | null;
  line: number;
  best: number;
  chosen: number;
  at: number;
  errors?: [number, number, number][];
}
/** Everything about a picture but its columns; which keys there are depends on its module. */
interface Header {
  seq?: number;
  layout?: Layout;
  name: string;
  origin: string;
  sentence: string;
  names: string[];
  numbers?: Omit<Numbered, "value">[];
  values: (number | null)[];
  /** Keys of numbers that are worse than they should be: red. */
  bad?: string[];
  table: Column[];
  series: Series[];
  marks?: Mark[];
  x?: Axis;
  y?: Axis;
  lanes?: Lane[];
  span?: Point;
  now?: number;
  /** Whether rows still come. */
  live?: boolean;
  window_s?: number | null;
  windows?: boolean;
  thin?: boolean;
  /** Of a picture of leases: its first so many lanes are slots. */
  slots?: number;
  tall?: number;
  lines?: Line[];
  /** Key of a number that is the mean of a line of steps -> the line; nothing: it holds for no part. */
  means?: Record<string, number | null>;
  slider?: Slider;
  /** Of a topology: rows of its matrix (none: a ring), the row that its edges are of, a moment, and moments to jump to. */
  parts?: string[];
  part?: number;
  at?: number;
  moments?: Mark[];
  cols?: Shown[];
  actions?: Action[];
  reasons?: Record<string, Record<string, string>>;
  row_key?: string;
  heat?: { most: number; row: string; key: string };
  buttons?: Action[];
  chips?: string[];
  notes?: string[];
  refused?: string;
  twin?: string;
  resume?: string;
  waits?: string[];
}
/** What Python says of a picture, of a click or in words. */
type Message = Record<string, any>;
/** Columns of one table, and the number of its rows. */
type Table = { n: number } & Record<string, any>;
type Tables = Record<string, Table>;
type Layout = {
  table: string;
  n: number;
  t0?: number;
  columns: [string, string][];
  drop: number;
  keep: number;
}[];
/** One picture as of the newest message. */
interface State {
  header: Header;
  tables: Tables;
  columns: Record<string, [string, string][]>;
  seq: number;
  newsAt: number;
  lostAt: number;
  dataAt: number;
  stop(): void;
}
type Point = [number, number];
type Align = "left" | "center" | "right";
/** Strokes, on a canvas or as SVG. */
interface Pen {
  rect(x: number, y: number, w: number, h: number, fill: string, alpha?: number): void;
  frame(x: number, y: number, w: number, h: number, colour: string, width?: number): void;
  line(points: Point[], colour: string, width?: number, dash?: number[]): void;
  area(points: Point[], fill: string, alpha: number): void;
  text(
    s: string,
    x: number,
    y: number,
    colour: string,
    align?: Align,
    bold?: boolean,
    size?: number,
  ): void;
  clip(x: number, y: number, w: number, h: number, draw: () => void): void;
}
/** Whether a module's page is gone. */
interface Gone {
  aborted: boolean;
}
/** What became of a click. */
interface Asked {
  name: string;
  args: Record<string, any>;
  id: string;
  state: "pending" | "failed";
  text: string;
  acked: boolean;
}
interface Commander {
  of(key: string): Asked | undefined;
  renew(key: string): void;
  send(key: string, name: string, args: object): void;
  said(m: Message): void;
}
/** Whether a button works now; `reason`: why not, and null for one that has no place here. */
interface Standing {
  enabled: boolean;
  reason: string | null | undefined;
  off: boolean;
}
/** The canvas of a picture. */
interface Easel {
  canvas: HTMLCanvasElement;
  ask(): void;
  svg(title: string): string;
  stop(): void;
}
/** Colours of the page. */
type Inks = Record<"fg" | "dim" | "line" | "soft" | "accent" | "bg", string>;
/** Where a timeline or a chart lies on its canvas; `rows` are a timeline's lanes. */
interface Places {
  left: number;
  right: number;
  top: number;
  bottom: number;
  rows: { y: number; h: number }[];
}
/** Where it lies, and what it shows there. */
interface Geometry extends Places {
  low: number;
  high: number;
  x(value: number): number;
}
/** A bar of a timeline. */
interface Bar {
  name: string;
  i: number;
  lane: number;
  series: number;
  start: number;
  stop: number;
  key: string;
}
/** What a timeline or a chart does in its own way. */
interface Drawing {
  /** Stands between the numbers and the canvas. */
  above: HTMLElement;
  height(width: number): number;
  /** Draws; null if there is nothing to draw. */
  draw(pen: Pen, width: number, height: number, ink: Inks): Geometry | null;
  /** Words for a place under the pointer, empty for none. */
  tip(px: number, py: number): string;
  tap(px: number, py: number): void;
  keys: Record<string, () => void>;
  changed(): void;
  /** What keys zoom around; the middle if not known. */
  centre?(): number | undefined;
  /** What is shown, where that was chosen in the page; null for all of it. */
  chosen?(): Point | null;
  /** Shows all of it again. */
  whole?(): void;
  /** Numbers by their keys (those that do not hold for a part are null) and words of a part that was chosen. */
  within?(span: Point): { values: Record<string, number | null>; text: string } | null;
  stop?(): void;
}
/** What timelines and charts share. */
interface Stage {
  root: HTMLElement;
  canvas: HTMLCanvasElement;
  details: HTMLElement;
  state: State;
  geometry: Geometry | null;
  groups: MarkGroup[];
  zoom: Point | null;
  /** Series that alone is drawn in strong colours. */
  focus: number | null;
  gone: Gone;
  ask(): void;
  valueAt(px: number): number;
  magnify(factor: number, centre?: number | undefined): void;
  start(drawing: Drawing): () => void;
}
interface HTMLCanvasElement {
  /** Draws at once, for paper. */
  draw?: () => void;
}
