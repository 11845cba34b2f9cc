/** Types of what the modules are given and share; read by the type check alone. */

/** A widget's model, as anywidget and a report's stub give it. */
interface Model {
  get(name: string): any;
  set(name: string, value: unknown): void;
  save_changes?(): void;
  send(content: object): void;
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
/** Everything about a picture but its columns; which keys there are depends on its module. */
type Header = Record<string, any>;
/** Columns of one table, and the number of its rows. */
type Table = { n: number } & Record<string, any>;
type Tables = Record<string, Table>;
type Layout = {
  table: string;
  n: number;
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
  hatch(x: number, y: number, w: number, h: number, kind: string, colour: string): void;
  clip(x: number, y: number, w: number, h: number, draw: () => void): void;
}
/** Whether a module's page is gone. */
interface Gone {
  aborted: boolean;
}
/** What became of a click. */
interface Asked {
  id: string;
  state: "pending" | "failed";
  text: string;
  acked: boolean;
}
interface Commander {
  of(key: string): Asked | undefined;
  renew(key: string): void;
  send(key: string, name: string, args: object): void;
  said(m: Header): void;
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
interface HTMLCanvasElement {
  /** Draws at once, for paper. */
  draw?: () => void;
}
