/** Style sheets come as text into the module of the widget, see `widget.config.mjs`. */
declare module '*.css' {
  const text: string;
  export default text;
}
