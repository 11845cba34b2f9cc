"""Draw views as SVG, plotly figures or binary payloads."""
