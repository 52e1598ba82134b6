/** What the server tells of a job that is not submitted yet. Sizes are bytes, times seconds from now. */

export interface IPackedFile {
  name: string;
  size: number;
}

export interface IForecast {
  start_low: number | null;
  start_high: number | null;
  text: string;
}

export interface IPreview {
  name: string;
  main: string;
  files: IPackedFile[];
  size: number;
  notes: string[];
  forecast: IForecast;
}
